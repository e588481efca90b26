package main

import (
	"encoding/hex"
	"fmt"
	"math/rand"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fluxcd/pkg/envsubst"
)

// substituted is what the cases are substituted with.
var substituted = map[string]string{
	"a": "alpha", "empty": "", "path": "/usr/local/bin:/usr/bin", "num": "42", "multi": "héllo wörld", "jp": "日本語テキスト",
	"file": "archive.tar.gz", "upper": "ABC", "mixed": "éÉßǆİᾳŉ", "star": "a*b?c[d]", "slash": "a/b/c", "dot": ".", "one": "1", "minus": "-3",
	"brace": "}", "dollar": "$x ${a}", "back": `a\b`, "rep": "abcabcabc", "quote": `"q" 'p'`, "_u": "under", "A1": "digit", "é": "accent", "long": strings.Repeat("ab/", 40),
}

func substitute(text string, strict bool) (output string, err error, panics bool) {
	defer func() {
		if recover() != nil {
			panics = true
		}
	}()
	output, err = envsubst.Eval(text, func(name string) (string, bool) {
		value, exists := substituted[name]
		return value, exists || !strict
	})
	return
}

// substitutions are first the variables, then the case of every letter that has two, then texts.
func substitutions() []object {
	cases := []object{{"variables": substituted}, caseOfLetters()}
	texts := []string{
		"", "plain", "$", "$$", "$$$", "$$$$", "$a", "$$a", "$${a}", "$$${a}", "$$$${a}", "${a}", "x${a}y", "${a}${one}", "${a} $b ${one}$", "${a}$", "${a}$$", "a$", "a$${", "\x00${a}", "x\x00${a}", "${a\x00}",
		"${", "${}", "${ }", "${a", "${a ", "${a }", "${ a}", "${a-}", "${a-b}", "${nope-b}", "${a+b}", "${a?b}", "${a.b}", "${a$}", "${${a}}", "${a${one}}", "${a@Q}", "${a!}", "${!a}", "${*}", "${1}", "${A1}", "${_u}", "${é}", "${é:=x}", "${²:=x}", "${٣:=x}", "{a}", "}", "${a}}", "{${a}}", "$ {a}", "${a\n}",
		"${nope}", "${#nope}", "${nope^}", "${nope/a/b}", "${nope:1}", "${nope#a}", "${nope%a}", "${nope:=d}", "${nope=d}", "${nope:-d}", "${nope:?d}", "${nope:+d}", "${a:?d}", "${a:+d}", "${empty:?d}", "${empty:+d}", "${empty:=d}", "${empty=d}", "${empty:-d}", "${a:=d}", "${a:-d}", "${a=d}",
		"${nope:=}", "${nope:-}", "${nope=}", "${nope:=${a}}", "${nope:=x${a}y}", "${nope:=x${a}y${one}z}", "${a:=${nope}}", "${a:=${nope:=${nope}}}", "${nope:=${nope:=${nope:=deep}}}", "${nope:=$$}", "${nope:=$${a}}", "${nope:=$a}", "${nope:=a\\}b}", "${nope:=a}b}", "${nope:=a b\tc}", "${nope:=a\nb}", "${nope:=\"q\"}", "${nope:='q'}", "${nope:=:}", "${nope:==}", "${nope==}", "${nope:=-}", "${nope:=é日}", "${nope:=a", "${nope:=${a}", "${nope:=", "${nope:", "${nope=", "${nope:é}", "${nope:日}", "${a:é}", "${a:😀}", "${nope:-", "${nope:=${", "${nope:=${}}", "${nope := d}", "${nope:= d }",
		"${#a}", "${#empty}", "${#multi}", "${#jp}", "${#}", "${##}", "${##a}", "${#a", "${#a }", "${# a}", "${#a:1}", "${#a#x}", "${#$}", "${#1}",
		"${a^}", "${a^^}", "${a,}", "${a,,}", "${upper,}", "${upper,,}", "${upper^}", "${mixed^^}", "${mixed,,}", "${mixed^}", "${mixed,}", "${jp^^}", "${empty^}", "${empty,,}", "${a^,}", "${upper,^}", "${a^^^}", "${a,,,}", "${a^x}", "${a^", "${a^^", "${a,a}", "${a^[a-l]}", "${multi^^}", "${multi^}", "${a^^}${upper,,}", "${minus^^}",
		"${a:0}", "${a:1}", "${a:4}", "${a:5}", "${a:6}", "${a:-1}", "${a: -1}", "${a:0-1}", "${a:+1}", "${a:01}", "${a:1x}", "${a:x}", "${a:}", "${a::}", "${a:::}", "${a::2}", "${a:1:}", "${a:1:2}", "${a:1::2}", "${a:1:2:3}", "${a:1:0}", "${a:0:99}", "${a:9:1}", "${a:5:1}", "${a:1:-1}", "${a:1:-4}", "${a:1:-9}", "${a:9:-1}", "${a:0:-5}", "${a:0:-6}", "${a:1:x}", "${a:1: 2}", "${a:1:+2}", "${a:1:2", "${a:1", "${a:1:", "${a:1_0}", "${a:0x1}", "${a:99999999999999999999}", "${a:-99999999999999999999}", "${a:1:99999999999999999999}", "${a:0:9223372036854775807}", "${a:1:9223372036854775807}", "${a:9223372036854775807:1}", "${a:0:-9223372036854775808}", "${a:${one}}", "${a:${one}:${one}}", "${a:${minus}}", "${a:0:${minus}}", "${a:${one}1}", "${a:1${one}}", "${a:$one}", "${a:1:2${one}}", "${multi:0:2}", "${multi:1:2}", "${multi:2}", "${multi:1}", "${jp:3}", "${jp:1}", "${jp:0:3}", "${jp:0:4}", "${empty:0}", "${empty:1:1}", "${a:1}${a:1}", "${#a:0}", "${nope:-${jp:1}}", "${a:.5}", "${a:1e0}", "${a:-0}", "${a:=1:2}",
		"${a/l/L}", "${a//a/A}", "${a/#a/A}", "${a/%a/A}", "${a/#l/L}", "${a/%l/L}", "${a/l}", "${a/l/}", "${a//a/}", "${a//a}", "${a/#a/}", "${a/%a/}", "${a/x/y}", "${a//x/y}", "${a/l/L}z", "${a/}", "${a//}", "${a///}", "${a////}", "${a///x}", "${a//a//x}", "${a/l//x}", "${a/l///x}", "${a/#/x}", "${a/%/x}", "${a/#}", "${a/#a", "${a/l/L", "${a/l", "${a/l/${one}}", "${a/${one}/x}", "${a/${dot}/x}", "${a//${empty}/-}", "${a/${empty}/-}", "${a/#${empty}/-}", "${a/%${empty}/-}", "${multi//${empty}/-}", "${jp//${empty}/-}", "${empty//${empty}/-}", "${empty/${empty}/-}", "${slash/\\//-}", "${slash//\\//-}", "${slash//\\//\\/}", "${slash/a\\/b/x}", "${back/\\\\/x}", "${back//\\\\/\\\\}", "${back/\\b/x}", "${a/l/\\}}", "${a/l/\\/}", "${a/l/$$}", "${a/$$/x}", "${dollar/$$/x}", "${dollar/$x/y}", "${a/l/$a}", "${a/l/${a}x}", "${a/l${one}/x}", "${a/[a-l]/x}", "${a//?/x}", "${a//*/x}", "${a/}/x}", "${brace/}/x}", "${a/l/x}y}", "${multi/ö/o}", "${multi//é/e}", "${jp/本/x}", "${a/%pha/${a/al/${one}}}", "${rep//abc/${rep//abc/${rep}}}", "${rep/#abc/x}", "${rep/%abc/x}", "${rep//abca/x}", "${rep//bc/${nope}}", "${quote//\"/}", "${quote//'/-}", "${path//:/ }", "${slash////x}", "${slash//b/\n}", "${jp:1/a/b}", "${multi/#h/${jp:1:1}}", "${nope:=${jp//${jp:1:1}/x}}", "${mixed//${mixed:1:1}/x}", "x/y ${a/l} z/w}",
		"${file#*.}", "${file##*.}", "${file%.*}", "${file%%.*}", "${path#*/}", "${path##*/}", "${path%/*}", "${path%%/*}", "${path%%:*}", "${path#/usr}", "${path#usr}", "${a#}", "${a##}", "${a%}", "${a%%}", "${a#", "${a#a", "${a###}", "${a###a}", "${a%%%}", "${a#*}", "${a##*}", "${a%*}", "${a%%*}", "${a#?}", "${a##?}", "${a%?}", "${a%%?}", "${a#??}", "${a#[a-b]}", "${a%[a-b]}", "${a#[^a]}", "${a#[^b]}", "${a#[}", "${a#[]}", "${a#[]a]}", "${a#[a}", "${a#[a-}", "${a#[a-]}", "${a#[-a]}", "${a#[a]]}", "${a#\\a}", "${a#\\}", "${a#al\\}", "${a#[\\a]}", "${a#[\\]}", "${a#*[}", "${a%[a]}", "${a%]a[}", "${a%]b-a[}", "${a%\\a}", "${star#a\\*}", "${star#*\\*}", "${star##*\\[}", "${star%\\[*}", "${star%[*}", "${multi#h?}", "${multi#?}", "${multi##*ö}", "${multi%%ö*}", "${multi#*[é-ö]}", "${multi%?}", "${jp#日}", "${jp#?}", "${jp##?本}", "${jp%ト}", "${jp%?}", "${jp#[日月]}", "${jp%%[ー-龍]*}", "${empty#a}", "${empty%*}", "${a#alpha}", "${a%alpha}", "${a##alpha}", "${a#alphabet}", "${a#${a}}", "${a#${one}}", "${a#a${one}}", "${a#${a}l}", "${a#*l}", "${a##*a}", "${a#**l}", "${a#*a*a}", "${a##*a*a}", "${a%a*a}", "${a#*x*}", "${a#a*}", "${slash#*/}", "${slash##*/}", "${slash%/*}", "${slash%%/*}", "${slash##*}", "${slash#?/?}", "${rep#*c}", "${rep##*c}", "${rep%a*}", "${rep%%a*}", "${long##*/ab}", "${long%ab*}", "${jp#${jp:0:1}}", "${jp%${jp:0:1}}", "${jp##*${jp:1:1}}", "${rep#*b*b*}", "${rep##*b*b}", "${rep#$$}", "${a#a}l}", "${brace#}}",
		"a: ${a}\nb: ${nope:=x}\n", "image: ${a:=nginx}:${num}", "cidr: ${num:=10.0.0.0/16}", "echo $PATH $(date) `x` $1 $@ $? $#", "${a} ${ a", "# ${a\n${a}", "'${a}' \"${a}\"", "${a}:${b:-${c:-${a}}}", "$${a}$$${a}$$$${a}", "\\${a}", "\\$${a}", "{{ ${a} }}", "${a}${", "$${", "${a//$${one}/x}", "${nope:={\"a\": \"${a}\"}}", "${nope:={}}", "${nope:=[]}", "${nope:={a}}",
	}
	names := []string{"a", "empty", "multi", "jp", "file", "mixed", "star", "slash", "dollar", "rep", "nope", "one"}
	operators := []string{"#", "##", "%", "%%", "/", "//", "/#", "/%", ":", ":=", "=", ":-", "^", "^^", ",", ",,"}
	patterns := []string{"*", "a", "*a", "a*", "?", "[a-c]", "[^a]*", "b/x", "é", "1:2", "${one}", "${rep}/${a}", "${dot}*", "\\", "a?c", "*[", "/", "本*", ""}
	random := rand.New(rand.NewSource(2))
	seen := map[string]bool{}
	for len(seen) < 500 {
		text := "${" + names[random.Intn(len(names))] + operators[random.Intn(len(operators))] + patterns[random.Intn(len(patterns))] + "}"
		if !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	texts = append(texts, made(500, 7, []string{"${a", "${", "${rep", "${nope", "}", ":", "1", "-", "=", "x", "/", "//", "#", "%", "*", "?", "[", "]", "^", ",", "$", "$$", "\\", "b", "é", " ", "${one}", ":=", "a", "-1"})...)
	for _, text := range texts {
		one := object{"text": text}
		output, err, panics := substitute(text, true)
		switch {
		case panics:
			one["panics"] = true
		case err != nil:
			one["error"] = err.Error()
			if lenient, err, _ := substitute(text, false); err == nil {
				note(one, "lenient", lenient)
			}
		default:
			note(one, "output", output)
		}
		cases = append(cases, one)
	}
	return cases
}

// note writes what is no text as the digits of its bytes.
func note(one object, field, text string) {
	if utf8.ValidString(text) {
		one[field] = text
	} else {
		one[field+"Bytes"] = hex.EncodeToString([]byte(text))
	}
}

// caseOfLetters is every letter that has another case, and what it becomes.
func caseOfLetters() object {
	var letters, uppers, lowers strings.Builder
	for letter := rune(1); letter <= unicode.MaxRune; letter++ {
		if unicode.ToUpper(letter) != letter || unicode.ToLower(letter) != letter {
			letters.WriteRune(letter)
			fmt.Fprintf(&uppers, "%c", unicode.ToUpper(letter))
			fmt.Fprintf(&lowers, "%c", unicode.ToLower(letter))
		}
	}
	return object{"letters": letters.String(), "uppers": uppers.String(), "lowers": lowers.String()}
}
