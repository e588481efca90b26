// The recorder of crates/go-words: what Go's own libraries say of many texts, as JSON on standard output.
//
//	go run . quote|duration|quantity|pattern|version|substitution > ../../crates/go-words/tests/data/<the same>.json
package main

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	blang "github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

type object = map[string]any

func main() {
	cases := map[string]func() []object{
		"quote": quotes, "duration": durations, "quantity": quantities, "pattern": patterns, "version": versions,
		"substitution": substitutions,
	}[os.Args[1]]()
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, one := range cases {
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(one); err != nil {
			panic(err)
		}
		if i < len(cases)-1 {
			out.Truncate(out.Len() - 1)
			out.WriteString(",\n")
		}
	}
	out.WriteString("]\n")
	os.Stdout.Write(out.Bytes())
}

// made gives texts of parts that the given words make at random, always the same ones.
func made(count, most int, words []string) []string {
	random := rand.New(rand.NewSource(1))
	seen := map[string]bool{}
	var texts []string
	for len(texts) < count {
		var text strings.Builder
		for range 1 + random.Intn(most) {
			text.WriteString(words[random.Intn(len(words))])
		}
		if !seen[text.String()] {
			seen[text.String()] = true
			texts = append(texts, text.String())
		}
	}
	return texts
}

func quotes() []object {
	var cases []object
	texts := []string{"", "plain", "it's", `a"b\c`, "é", "e\u0301", "\u0301", "日本", "😀", "\U0010ffff", "\ufeff", "\ufffd", "\ue000"}
	for letter := rune(0); letter < 0x180; letter++ {
		texts = append(texts, string(letter))
	}
	for letter := rune(0x2000); letter < 0x2070; letter++ {
		texts = append(texts, string(letter))
	}
	for _, letter := range []rune{0x300, 0x378, 0x3000, 0x180e, 0x1680, 0xfff9, 0xe0001, 0x1d173, 0x200d, 0xfe0f, 0x1f3fd, 0xa, 0x61c} {
		texts = append(texts, "a"+string(letter)+"b")
	}
	for _, text := range texts {
		cases = append(cases, object{"text": text, "quoted": strconv.Quote(text)})
	}
	return cases
}

func durations() []object {
	texts := []string{
		"", "0", "+0", "-0", "00", "0s", "1", "s", ".", ".s", "1.s", ".5s", "1h30m", "1h 30m", "-1.5h", "+5s", "1us", "1µs", "1μs", "1ns", "0.3ns",
		"9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775807s",
		"2562047h47m16.854775808s", "1.0000000000000000000000000001s", "0.9223372036854775807h", "1e3s", "3 days", "3days", "1d", "1w2d", "2 weeks",
		"1 hour", "1hrs", "1 minute 2 seconds", "5 MILLI", "1Days", "5x", "5x 3s", "hello 3s", "1 daysaster", "1.5d", "1.5 days", "99999999999999999999d",
		"-3 days", "1y", "1 nano", "1 nanos", "1 micro", "1 µs", "3 seconds ago", "1 ms", "1 milliseconds", "1 hourglass", "1 wk", "1 secs.", "10m0.5",
	}
	texts = append(texts, made(300, 5, []string{"1", "2", "0", ".5", "60", "h", "m", "s", "ms", "us", "ns", "-", ".", " ", "d", "1h", "3m", "0.25s", "days", "weeks"})...)
	var cases []object
	for _, text := range texts {
		one := object{"text": text}
		if parsed, err := time.ParseDuration(text); err == nil {
			one["nanoseconds"] = strconv.FormatInt(int64(parsed), 10)
			one["printed"] = parsed.String()
		} else {
			one["error"] = err.Error()
		}
		if parsed, err := strfmt.ParseDuration(text); err == nil {
			one["loose"] = strconv.FormatInt(int64(parsed), 10)
		}
		cases = append(cases, one)
	}
	for _, value := range []int64{1, 999, 1000, 1001, 1100, 999999, 1000000, 1100000, 999999999, 1000000001, 60000000000, 3600000000000, 3661000000001, -1, -1500000000, 9223372036854775807, -9223372036854775808} {
		text := time.Duration(value).String()
		parsed, _ := time.ParseDuration(text)
		loose, _ := strfmt.ParseDuration(text)
		cases = append(cases, object{"text": text, "nanoseconds": strconv.FormatInt(int64(parsed), 10), "printed": text, "loose": strconv.FormatInt(int64(loose), 10)})
	}
	return cases
}

func quantities() []object {
	texts := []string{
		"", "0", "00", "+0", "-0", ".", "+.", "-", "+", ".5", "5.", "1.G", "e3", "E", "k", "1e", "1E", "1e3", "1E3", "1e+3", "1e-3", "1e-10", "0.1n", "-0.1n", "1.5Gi", "0.5Ki", "0.1Ki",
		"1000", "1000m", "1024Mi", "1025Mi", "+5", "007", "01Ki", "1.2.3", "1Kb", "1 Gi", "1ki", "1K", "1mi", "1ii", "1Ee", "1n", "1u", "1m", "1000000n", "9223372036854775807",
		"9223372036854775808", "8Ei", "7Ei", "9Ei", "-8Ei", "-9Ei", "10E", "9E", "100E", "1000E", "1e18", "1e19", "1e21", "1e99", "1e-99", "0e5", "0.000Ki",
		"1.000000001", "1.0000000001", "999999999999999999", "9999999999999999999", "123456789012345678", "1234567890123456789n", "12345678901234567890n", "1023", "1024", "1023Ki",
		"0.25Ki", "-0.5Gi", "-1024", "1.1Gi", "0.3Mi", "128974848", "129e6", "129M", "123Mi", "1e3Ki", "12e6", "12E6", "1e9", "1000000000", "1.5e3", "0.0015", "100000", "1500m", "1.50", "-1.5", "5e0",
		"1i", "1e3i", "++1", "1-", "1+2", "1e1.5", "\u0661", "1\n", "1Gi ", "0x10", "1_000", "3000000000000000Ki", "0.5Ei", "0.000000000000000001Ei", "1.0000000000000000000000001Ki",
	}
	texts = append(texts, made(700, 4, []string{"0", "1", "5", "12", "100", "000", "999", "1024", ".", "-", "e", "E", "3", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", ".5", ".25", "123456789"})...)
	var cases []object
	// Go would work out as many digits as the exponent says.
	long := regexp.MustCompile("[eE][-+]?[0-9]{3}")
	for _, text := range texts {
		if long.MatchString(text) {
			continue
		}
		one := object{"text": text}
		parsed, err := resource.ParseQuantity(text)
		if err != nil {
			one["error"] = err.Error()
			cases = append(cases, one)
			continue
		}
		one["canonical"] = parsed.String()
		one["sign"] = parsed.Sign()
		one["float"] = parsed.AsApproximateFloat64()
		if integer, ok := parsed.AsInt64(); ok {
			one["integer"] = strconv.FormatInt(integer, 10)
		}
		sum := parsed.DeepCopy()
		sum.Add(resource.MustParse("1500m"))
		one["plus"] = sum.String()
		difference := parsed.DeepCopy()
		difference.Sub(resource.MustParse("1Ki"))
		one["minus"] = difference.String()
		one["above"] = parsed.Cmp(resource.MustParse("1Ki"))
		milli := parsed.DeepCopy()
		milli.RoundUp(resource.Milli)
		one["milli"] = milli.String()
		cases = append(cases, one)
	}
	return cases
}

func patterns() []object {
	texts := []string{"", "a", "ab", "aab", "abc", "a.b", "axb", "{{ name }}", "a{1,x}", "1-2", "\u0663", "\u00e9", "A", "-", "]", "[", "&", "~", "^", "a&b", "_", " ", "\n", "a\nb", "x:y", "\\", "é1", "\u212a", "k", "0", "001", "<", "a\vb", "+", ","}
	given := []string{
		"", "^a", "a|b", "^[[a]+$", "^[a&&b]+$", "[a--b]", "[+--]", "[--a]", "[a~~b]", "^[[:digit:]-]+$", "^[]x]$", "^[^]x]$", "[]", "[", "[^", "[a", "[a-", "[]a", "[z-a]", "[a-\\d]", "[\\d-z]", "^[\\d.]+$", "^[^\\s]+$", "[\\D]", "^[^\\S]$", "\\d", "^\\w$", "^\\W$", "^\\s$", "\\bb", "a\\Bb", "[\\b]",
		"a\\/b", "a\\_b", "\\<", "\\-", "\\&", "\\ ", "^\\Qa.b\\E$", "\\Qa.b", "[\\Qa\\E]", "\\Q\\E*", "\\Qab\\E+$", "\\141", "[\\141]", "\\061", "\\08", "\\0", "\\1", "\\12", "\\8", "\\x61", "\\x6", "\\x{61}", "\\x{110000}", "\\x{}", "\\xzz", "\\u0061", "\\U", "\\a", "\\v", "\\f", "\\e", "\\z", "a\\z", "\\Z", "\\A", "[\\A]", "\\C", "\\G", "\\K", "\\R", "\\X", "\\N", "\\h", "\\y",
		"\\pL", "\\p{Greek}", "\\p{^L}", "\\P{^L}", "\\PL", "\\pé", "\\p{Foo}", "\\p{", "\\p", "[\\pL\\d]", "[^\\pL]", "\\p{Lu}", "\\p{L}{2}", "\\p{Letter}", "\\p{Alphabetic}", "\\p{script=Greek}", "\\p{Any}", "\\p{lu}", "[[:foo:]]", "[[:^digit:]]", "[[:word:]]", "[:digit:]", "[[:digit:]", "[[.a.]]", "[[=a=]]", "[a[:digit:]b]",
		"a**", "a*+", "a*?", "a*??", "a+?", "a??", "a???", "a{2}", "a{2}?", "a{2}{3}", "a{2}*", "a*{2}", "a{,2}", "a{2,}", "a{2,1}", "a{1000}", "a{1001}", "a{1,1001}", "a{1,x}", "^{{ name }}$", "a{", "a}", "{", "{1}", "a{1", "a{ 1}", "a{01}", "*", "+a", "?", "(*)", "|*", "a|*", "^*", "$*", "\\b*", "(a*)*", "(a{500}){3}", "(a{10}){10}", "((a{100}){100}){100}", "x{0}", "\\{1}", "a\\{1\\}",
		"(", ")", "(a", "a)", "(a))", "((a)", "()", "(|a)", "(?:a)", "(?:", "(?i)A", "(?i:A)b", "(?s).", "(?m)^b", "(?U)a+", "(?x)a", "(?u)a", "(?R)a", "(?-i)a", "(?i-s:a)", "(?i-)", "(?-)", "(?)", "(?P<n>a)", "(?<n>a)", "(?P<n>a)(?P<n>b)", "(?P<1>a)", "(?P<>a)", "(?P<n", "(?P=n)", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#c)a", "(?P<ü>a)", "(?P<a.b>a)", "(?P<a[0]>a)", "(?n)a", "(?i)k", "(?i)[k]", "(?i)\\w", "(?ix)a", "(?ims)a", "(?^a)",
		"a\\", "\\", ".", "^.$", "^.*$", "a.b", "$", "^$", "\\.", "&&", "a#b", "a b", "#", "[#]", "[ ]", "~", "a-b", "/", "é", "[é]", "[à-ü]", "<", "[<]", "(?i)é", "[[:alpha:]-z]", "[a\\]b]", "[\\\\]", "[\\-a]", "[a\\-z]", "[\\^a]", "[^^]", "[a^]", "[-a]", "[a-]", "[a-c-e]", "[%--]", "[\\w-]", "[\\w-a]", "[[-a]", "[[]", "[[]]", "[a||b]", "[\\n]", "[\\x61-\\x63]", "\\t",
	}
	texts2 := made(400, 5, []string{"a", "b", "\\", "[", "]", "(", ")", "{", "}", "*", "+", "?", "|", "^", "-", "d", "w", "1", "2,", "a-c", "[^", "(?:", "\\d", "\\b", "[:alpha:]", ".", "&&", "\\Q", "\\E", "(?i)"})
	var cases []object
	for _, pattern := range append(given, texts2...) {
		one := object{"pattern": pattern}
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			one["error"] = err.Error()
		} else {
			var matching []string
			for _, text := range texts {
				if found := compiled.FindStringIndex(text); found != nil {
					matching = append(matching, text[:found[0]]+"«"+text[found[0]:found[1]]+"»"+text[found[1]:])
				}
			}
			one["matches"] = matching
		}
		cases = append(cases, one)
	}
	return append([]object{{"texts": texts}}, cases...)
}

func versions() []object {
	texts := []string{
		"", "1", "1.2", "1.2.3", "1.2.3.4", "v1.2.3", "1.02.3", "01.2.3", "1.2.03", "1.2.x", "a.2.3", "1.b.3", "1.2.3-", "1.2.3-a", "1.2.3-a.b", "1.2.3-a..b", "1.2.3-01", "1.2.3-0", "1.2.3-1a",
		"1.2.3+", "1.2.3+b", "1.2.3+b..c", "1.2.3+01", "1.2.3-a+b", "1.2.3+a-b", "1.2.3-a_b", "1.2.3+a_b", "18446744073709551615.0.0", "18446744073709551616.0.0", "1.18446744073709551616.0",
		"1.0.18446744073709551616", "1.0.0-18446744073709551616", "1.0.0-18446744073709551615", " 1.2.3", "1.2.3 ", "-1.2.3", "+1.2.3", "1..3", ".1.2", "1.2.", "1.2.3-é", "1.2.3+é", "1.2.3--", "1.2.3---1", "1.2.3-+b", "1.2.\"3",
	}
	var cases []object
	for _, text := range texts {
		one := object{"text": text}
		if parsed, err := blang.Parse(text); err == nil {
			one["printed"] = parsed.String()
			var above []string
			for _, other := range []string{"1.2.3", "1.2.3-a", "1.2.3-0", "1.0.0-18446744073709551615"} {
				if parsed.GT(blang.MustParse(other)) {
					above = append(above, other)
				}
			}
			one["above"] = above
		} else {
			one["error"] = err.Error()
		}
		cases = append(cases, one)
	}
	return cases
}
