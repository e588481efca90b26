/* Makes system calls from a process that is confined as a lane is, one for each line of standard input, and prints what came of each: the
 * result and the error number, or "signal N".
 *
 *   injector [FILTER FILTER]
 *
 * A line is USER NUMBER ARGUMENT... with USER a number, or "-" for the user that runs this; the first letter says whether the filters are
 * applied ("f") or not ("n"). An argument is a number in C's notation, "s:TEXT" for the address of a text, or "b:" for that of 4096 bytes.
 * NUMBER may be "i386:NUMBER" for a call by the gate of 32-bit programs. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_fprog filters[2];

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void load(const char *path, struct sock_fprog *into) {
    static struct sock_filter room[2][4096];
    static int used;
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    into->filter = room[used++];
    into->len = fread(into->filter, sizeof(struct sock_filter), 4096, file);
    fclose(file);
}

static long enter_by_gate_of_32_bits(long number) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0), "c"(0), "d"(0) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
#else
    (void)number;
    errno = ENOSYS;
    return -1;
#endif
}

static void inject(char *line, int out) {
    char *words[9] = {0};
    int count = 0;
    for (char *word = strtok(line, " \n"); word && count < 9; word = strtok(NULL, " \n")) words[count++] = word;
    if (count < 3) fail("a line");
    int by_gate = !strncmp(words[2], "i386:", 5);
    long number = (long)strtoull(words[2] + (by_gate ? 5 : 0), NULL, 0);
    unsigned long arguments[6] = {0};
    for (int at = 0; at < 6 && words[3 + at]; at++) {
        char *word = words[3 + at];
        if (!strncmp(word, "s:", 2)) arguments[at] = (unsigned long)(word + 2);
        else if (!strncmp(word, "b:", 2)) arguments[at] = (unsigned long)calloc(1, 4096);
        else arguments[at] = strtoull(word, NULL, 0);
    }
    if (strcmp(words[1], "-")) {
        unsigned user = (unsigned)strtoul(words[1], NULL, 10);
        if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) fail("a user");
    }
    alarm(2);
    if (words[0][0] == 'f') {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no new privileges");
        for (int at = 0; at < 2; at++)
            if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filters[at])) fail("a filter");
    }
    errno = 0;
    long result = by_gate ? enter_by_gate_of_32_bits(number)
                          : syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    int error = errno;
    char result_line[64];
    int length = snprintf(result_line, sizeof result_line, "%ld %d", result, result == -1 ? error : 0);
    /* If the call itself closed or redirected the pipe, no result arrives, and the call counts as allowed. */
    if (write(out, result_line, length) != length) _exit(1);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        load(argv[1], &filters[0]);
        load(argv[2], &filters[1]);
    }
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        int ends[2];
        if (pipe(ends)) fail("a pipe");
        fflush(stdout);
        pid_t child = fork();
        if (child < 0) fail("a process");
        if (!child) {
            close(ends[0]);
            inject(line, ends[1]);
        }
        close(ends[1]);
        char result_line[64] = {0};
        ssize_t length = read(ends[0], result_line, sizeof result_line - 1);
        close(ends[0]);
        int status;
        if (waitpid(child, &status, 0) != child) fail("an end");
        if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
        else if (length > 0) printf("%s\n", result_line);
        else printf("ended %d\n", WEXITSTATUS(status));
    }
    return 0;
}
