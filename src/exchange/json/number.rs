//! Numbers, as JSON writes them. A number may only leave its text if the same text comes back.

/// The largest whole number JavaScript counts exactly.
const WHOLE_MAX: u64 = (1 << 53) - 1;

/// A whole number from nothing up, written as such.
pub(super) fn whole(raw: &str) -> Option<u64> {
    raw.parse().ok().filter(|number| *number <= WHOLE_MAX)
}

/// A whole number, written as such.
pub(super) fn signed(raw: &str) -> Option<i64> {
    let number: i64 = raw.parse().ok()?;
    (number.unsigned_abs() <= WHOLE_MAX && number.to_string() == raw).then_some(number)
}

/// An amount from nothing up, written the way JavaScript does.
pub(super) fn amount(raw: &str) -> Option<f64> {
    let number: f64 = raw.parse().ok()?;
    let fits = number.is_finite() && number.is_sign_positive();
    (fits && script_number(number) == raw).then_some(number)
}

/// A number the way JavaScript writes it: OpenCode's numbers come back as they were. What is not finite is
/// `null`, as there.
pub(in crate::exchange) fn script_number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        "null".into()
    } else if number == 0.0 {
        "0".into()
    } else if (1e-6..1e21).contains(&size) {
        number.to_string()
    } else {
        let text = format!("{number:e}");
        if size > 1.0 { text.replace('e', "e+") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_only_if_the_same_text_comes_back() {
        for (raw, expected) in [
            ("0", Some(0)),
            ("1755169195136", Some(1_755_169_195_136)),
            ("9007199254740991", Some(WHOLE_MAX)),
            ("9007199254740992", None),
            ("-1", None),
            ("-0", None),
            ("1.0", None),
            ("1e3", None),
            ("true", None),
            (r#""5""#, None),
        ] {
            assert_eq!(whole(raw), expected, "{raw}");
        }
        for (raw, expected) in [
            ("-5", Some(-5)),
            ("0", Some(0)),
            ("-0", None),
            ("1.5", None),
            ("99999999999999999", None),
        ] {
            assert_eq!(signed(raw), expected, "{raw}");
        }
    }

    #[test]
    fn amounts_are_written_as_javascript_does() {
        for text in
            ["0", "1", "0.1", "0.30000000000000004", "1e-7", "1.5e-10", "123456789", "1e+21"]
        {
            let number = amount(text).unwrap();
            assert_eq!(script_number(number), text);
        }
        for text in ["0.0", "0.10", "-0", "-0.5", "1e-5", "1E-7", "1e21", "1e999", "null"] {
            assert_eq!(amount(text), None, "{text}");
        }
    }
}
