use proptest::prelude::*;

use super::*;

#[test]
fn whole_names_are_matched_in_re2_syntax() {
    // Rule: an expression matches a whole name or not at all, and means what it means in RE2.
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("foo", &["foo"], &["foobar", "afoo", "fo"]),
        ("foo|foobar", &["foo", "foobar"], &["foobarx"]),
        ("foo.*", &["foo", "foo.bar-1"], &["a.foo"]),
        ("^foo-[0-9]+$", &["foo-12"], &["foo-", "foo-1a"]),
        (r"\Qa.b\E.", &["a.bc"], &["axbc", "a.b"]),
        (r"\Qa.b", &["a.b"], &["axb"]),
        (r"a\.b", &["a.b"], &["axb"]),
        (r"t\d\w\S", &["t1_x", "t0aa"], &["tx11"]),
        (r"[\d]x[^\W]", &["1xa"], &["axa", "1x-"]),
        ("[a&&b]", &["a", "b"], &["c"]),
        ("[[:digit:]x]+", &["1x2"], &["y"]),
        ("[]a]", &["a"], &["b"]),
        ("[[a]", &["a"], &["b"]),
        ("[a~~b]", &["a", "b"], &["c"]),
        ("[--a]", &["-", "a", "_", "Z"], &["b"]),
        ("[+--]", &["-"], &["a"]),
        ("[a-]x", &["ax", "-x"], &["bx"]),
        ("(?i)FOO", &["foo", "FoO"], &["bar"]),
        ("(?P<name>a)(?:b)", &["ab"], &["a"]),
        (r"\x41\101\x{42}", &["AAB"], &["aab"]),
        (r"a\-b\_c", &["a-b_c"], &["ab_c"]),
        ("a{2}b{1,}c{0,1}", &["aab", "aabbc"], &["ab"]),
        ("a{,2}", &["a{,2}"], &["aa"]),
        ("a+?b*?c??", &["ab", "abc"], &["c"]),
        (r"\pL+", &["abc"], &["1"]),
        ("", &[""], &["a"]),
    ];
    for (text, matching, others) in cases {
        let regex = TopicRegex::new(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        matching.iter().for_each(|name| assert!(regex.is_match(name), "{text} matches {name}"));
        others.iter().for_each(|name| assert!(!regex.is_match(name), "{text} does not match {name}"));
    }
}

#[test]
fn what_is_not_re2_or_too_large_is_refused() {
    // Rule: look-around, back references, unknown flags, unbalanced parentheses and what would need much memory are errors.
    let nested = format!("{}a{}", "(".repeat(5_000), ")".repeat(5_000));
    let large = "(((a{100}){100}){100}){100}";
    let cases = [
        "(a",
        "a)(b",
        "a)",
        "[a",
        "*a",
        "a**",
        "a+?+",
        "a{2}{3}",
        "a{1001}",
        "(?=a)",
        "(?x)a",
        r"(a)\1\2\9",
        "\\",
        "(?Q)",
        r"\p{",
        large,
        &nested,
    ];
    for text in cases {
        let error = TopicRegex::new(text).map(|_| ()).expect_err(text);
        assert_eq!(error.regex, text);
        assert!(!error.reason.is_empty());
    }
}

proptest! {
    #[test]
    fn any_text_is_compiled_or_refused(text in ".{0,40}", name in "[a-zA-Z0-9._-]{1,10}") {
        // Rule: no text makes the compiler panic.
        if let Ok(regex) = TopicRegex::new(&text) {
            regex.is_match(&name);
        }
    }

    #[test]
    fn any_mix_of_syntax_is_compiled_or_refused(parts in proptest::collection::vec(
        prop::sample::select(vec!["[", "]", "(", ")", "(?", ":", "\\", "\\Q", "\\E", "-", "^", "a", "[:alpha:]", "{", "}", "2", "|", "&", "p", "*"]),
        0..14,
    )) {
        // Rule: as above, for texts made of what means something.
        let text = parts.concat();
        let _compiled = TopicRegex::new(&text).is_ok();
    }

    #[test]
    fn a_quoted_name_matches_itself_alone(name in "[a-zA-Z0-9._-]{1,20}", other in "[a-zA-Z0-9._-]{1,20}") {
        // Rule: what is quoted has no meaning but itself.
        let regex = TopicRegex::new(&format!(r"\Q{name}\E")).expect("quoted");
        prop_assert!(regex.is_match(&name));
        prop_assert_eq!(regex.is_match(&other), name == other);
    }
}
