//! What an agent may do without asking.
//!
//! A rule says of a permission and a pattern whether a use is allowed, denied or asked for. The
//! last rule that applies wins, so that what comes later in a list can correct what came before.
//! Rules a delegate was given are the exception: they never allow what the others do not.

use crate::limits::RULES_BYTES_MAX;
use crate::model::code::{Code, Coded};
use serde::{Deserialize, Serialize};
use std::str::Chars;

/// The most rules one list may hold.
pub const RULES_MAX: usize = 1000;

/// The most bytes a rule's permission or pattern may have.
pub const RULE_TEXT_BYTES_MAX: usize = 4096;

/// What a request without patterns is about.
const ANYTHING: &[&str] = &["*"];

/// What happens to a use. Numbers are stored; a retired one stays taken.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Somebody is asked first.
    Ask = 0,
    /// It goes ahead.
    Allow = 1,
    /// It does not.
    Deny = 2,
}

impl Action {
    /// The one behind a stored number.
    pub fn from_number(number: u16) -> Option<Self> {
        let all = [Action::Ask, Action::Allow, Action::Deny];
        all.into_iter().find(|action| *action as u16 == number)
    }

    /// Whether it lets less through than another. The stored numbers are in another order.
    pub fn is_stricter_than(self, other: Action) -> bool {
        match self {
            Action::Allow => false,
            Action::Ask => other == Action::Allow,
            Action::Deny => other != Action::Deny,
        }
    }
}

/// What happens to the uses that both its texts match.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The permissions it is about, with wildcards.
    pub permission: String,
    /// The uses of them it is about, with wildcards.
    pub pattern: String,
    /// What happens to them.
    pub action: Action,
}

impl Rule {
    fn applies(&self, permission: &str, pattern: &str) -> bool {
        matches(permission, &self.permission) && matches(pattern, &self.pattern)
    }
}

/// Why a list of rules is not accepted. Rules are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The list is too long.
    #[error("there are {0} rules; at most {RULES_MAX} are accepted")]
    TooMany(usize),
    /// A permission or a pattern is too long.
    #[error("a text of rule {0} is longer than {RULE_TEXT_BYTES_MAX} bytes")]
    TooLong(usize),
    /// All together are too long.
    #[error("the rules are {0} bytes long; the most accepted is {RULES_BYTES_MAX}")]
    TooManyBytes(usize),
    /// People read rules before they agree to them, so a rule must look like what it says.
    #[error("a text of rule {0} holds a control character")]
    Control(usize),
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        Code::RulesMalformed
    }
}

/// Whether a list of rules is one to store.
pub fn check(rules: &[Rule]) -> Result<(), Malformed> {
    if rules.len() > RULES_MAX {
        return Err(Malformed::TooMany(rules.len()));
    }
    let bytes = rules.iter().map(|rule| rule.permission.len() + rule.pattern.len()).sum();
    if bytes > RULES_BYTES_MAX {
        return Err(Malformed::TooManyBytes(bytes));
    }
    for (rule, held) in rules.iter().enumerate() {
        for text in [&held.permission, &held.pattern] {
            if text.len() > RULE_TEXT_BYTES_MAX {
                return Err(Malformed::TooLong(rule));
            }
            if text.contains(char::is_control) {
                return Err(Malformed::Control(rule));
            }
        }
    }
    Ok(())
}

/// Whether a pattern matches a whole text. `*` stands for any text and `?` for any character. A
/// ` *` at the end may be missing from the text, so that `git push *` also means `git push`.
pub fn matches(text: &str, pattern: &str) -> bool {
    wildcard(text, pattern) || pattern.strip_suffix(" *").is_some_and(|bare| wildcard(text, bare))
}

/// Only the last star is ever tried again: whatever an earlier one could take, a later one can
/// take too. So the work is bounded by the product of the lengths, whatever the pattern.
fn wildcard(text: &str, pattern: &str) -> bool {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    // The text left to the last star, and the pattern behind it.
    let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let wanted = pattern.next();
        if wanted == Some('*') {
            star = Some((text.clone(), pattern.clone()));
            continue;
        }
        match (wanted, text.next()) {
            (None, None) => return true,
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            (Some(_), None) => return false,
            (_, Some(_)) => {
                let Some((left, behind)) = &mut star else { return false };
                left.next();
                (text, pattern) = (left.clone(), behind.clone());
            }
        }
    }
}

/// The permission a tool needs. All that change files share one.
pub fn permission_of_tool(tool: &str) -> &str {
    match tool {
        "edit" | "write" | "apply_patch" | "multiedit" => "edit",
        _ => tool,
    }
}

/// The lists of rules a use is seen under, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layers<'a> {
    /// Those of everybody.
    pub server: &'a [Rule],
    /// Those of the project.
    pub project: &'a [Rule],
    /// Those of the session.
    pub session: &'a [Rule],
    /// Those the work was handed over with, by one hand. They only ever make it stricter. Lists of
    /// several hands must not be joined here, for a later rule overrules an earlier one.
    pub delegate: &'a [Rule],
}

/// What happens to a use, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What happens.
    pub action: Action,
    /// The rule that says so; none if no rule is about it.
    pub rule: Option<Rule>,
}

/// What happens to a use of a permission that touches all of these patterns. One that is denied
/// denies the use; one that is asked for makes it a question.
pub fn decide(layers: &Layers<'_>, permission: &str, patterns: &[&str]) -> Decision {
    let patterns = if patterns.is_empty() { ANYTHING } else { patterns };
    let (mut action, mut rule) = (Action::Allow, None);
    for pattern in patterns {
        let (next, because) = decide_one(layers, permission, pattern);
        // Of several that ask, the first that has a rule for it tells why.
        let tells_more = next == action && (action == Action::Allow || rule.is_none());
        if tells_more || next.is_stricter_than(action) {
            (action, rule) = (next, because);
        }
    }
    Decision { action, rule: rule.cloned() }
}

type Decided<'a> = (Action, Option<&'a Rule>);

fn decide_one<'a>(layers: &Layers<'a>, permission: &str, pattern: &str) -> Decided<'a> {
    let last = |rules: &'a [Rule]| rules.iter().rfind(|rule| rule.applies(permission, pattern));
    let rule = [layers.session, layers.project, layers.server].into_iter().find_map(last);
    let action = rule.map_or(Action::Ask, |rule| rule.action);
    match last(layers.delegate) {
        Some(own) if own.action.is_stricter_than(action) => (own.action, Some(own)),
        _ => (action, rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `allow bash git *` and so on, one rule a line.
    fn rules(text: &str) -> Vec<Rule> {
        let rule = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let mut word = || words.next().unwrap();
            let name = word();
            let number = (0u16..).zip(["ask", "allow", "deny"]).find(|(_, known)| *known == name);
            let action = Action::from_number(number.unwrap().0).unwrap();
            Rule { permission: word(), pattern: word(), action }
        };
        text.lines().map(rule).collect()
    }

    #[test]
    fn patterns_match_whole_texts() {
        // A pattern, what it matches, and what it does not.
        let table: [(&str, &[&str], &[&str]); 9] = [
            ("", &[""], &["a"]),
            ("*", &["", "a", "a/b\nc"], &[]),
            ("?", &["a", "ä"], &["", "ab"]),
            ("abc", &["abc"], &["ab", "abcd", "ABC"]),
            ("a*", &["a", "abc", "a*"], &["", "ba"]),
            ("a*b?", &["abcbd", "abb"], &["ab", "abcb", "abcd"]),
            ("?.ö", &["ä.ö"], &["äxö", ".ö"]),
            ("git push *", &["git push", "git push -f", "git push "], &["git pushes", "git"]),
            (" *", &["", " ", " a"], &["a"]),
        ];
        for (pattern, good, bad) in table {
            assert!(good.iter().all(|text| matches(text, pattern)), "{pattern:?}");
            assert!(!bad.iter().any(|text| matches(text, pattern)), "{pattern:?}");
        }
        let slow = format!("{}b", "a*".repeat(RULE_TEXT_BYTES_MAX / 2 - 1));
        assert!(!matches(&"a".repeat(RULE_TEXT_BYTES_MAX), &slow), "and soon");
    }

    #[test]
    fn the_last_rule_that_applies_decides() {
        let server = rules("ask bash *\nallow read *\ndeny read *.env");
        let project = rules("allow bash git *\nallow bash git log\ndeny bash git push *");
        let session = rules("allow edit src/*\nask edit src/main.rs");
        let delegate = rules("deny bash git rm *\nallow * *.env\nask read secret*\nallow web *");
        let table: [(&str, &[&str], Action, Option<&str>); 12] = [
            ("bash", &["git push"], Action::Deny, Some("deny bash git push *")),
            ("bash", &["git status", "git log"], Action::Allow, Some("allow bash git log")),
            ("bash", &["git status", "ls"], Action::Ask, Some("ask bash *")),
            ("bash", &["ls", "git push", "x"], Action::Deny, Some("deny bash git push *")),
            ("bash", &[], Action::Ask, Some("ask bash *")),
            ("edit", &["src/lib.rs"], Action::Allow, Some("allow edit src/*")),
            ("edit", &["README", "src/main.rs"], Action::Ask, Some("ask edit src/main.rs")),
            ("edit", &["README", "src/lib.rs"], Action::Ask, None),
            ("bash", &["git rm"], Action::Deny, Some("deny bash git rm *")),
            ("read", &[".env"], Action::Deny, Some("deny read *.env")),
            ("read", &["secret"], Action::Ask, Some("ask read secret*")),
            ("web", &["x"], Action::Ask, None),
        ];
        let layers =
            Layers { server: &server, project: &project, session: &session, delegate: &delegate };
        for (permission, patterns, action, rule) in table {
            let want = Decision { action, rule: rule.map(|text| rules(text).remove(0)) };
            assert_eq!(decide(&layers, permission, patterns), want, "{permission} {patterns:?}");
        }
    }

    #[test]
    fn lists_are_checked() {
        let rule = |text: &str| rules(&format!("allow bash {text}")).remove(0);
        let torn = |text: &str| Rule { pattern: text.to_owned(), ..rule("*") };
        let long = |bytes: usize| rule(&"x".repeat(bytes));
        let table = [
            (vec![rule("*"); RULES_MAX], Ok(())),
            (vec![rule("*"); RULES_MAX + 1], Err(Malformed::TooMany(RULES_MAX + 1))),
            (vec![long(RULE_TEXT_BYTES_MAX)], Ok(())),
            (vec![long(RULE_TEXT_BYTES_MAX + 1)], Err(Malformed::TooLong(0))),
            (vec![rule("*"), torn("a\nb")], Err(Malformed::Control(1))),
            (vec![torn("a\u{9b}b")], Err(Malformed::Control(0))),
        ];
        for (list, want) in table {
            assert_eq!(check(&list), want);
        }
    }

    #[test]
    fn tools_and_numbers_are_known() {
        let tools = ["edit", "write", "apply_patch", "multiedit", "bash"].map(permission_of_tool);
        assert_eq!(tools, ["edit", "edit", "edit", "edit", "bash"]);
        let numbers = (0..4).map(|number| Action::from_number(number).map(|known| known as u16));
        assert_eq!(numbers.collect::<Vec<_>>(), [Some(0), Some(1), Some(2), None]);
    }

    fn some_rules() -> impl Strategy<Value = Vec<Rule>> {
        let action = prop::sample::select(vec![Action::Ask, Action::Allow, Action::Deny]);
        let rule = ("[ab*?]{1,2}", "[ab *?]{0,4}", action);
        let rule =
            rule.prop_map(|(permission, pattern, action)| Rule { permission, pattern, action });
        prop::collection::vec(rule, 0..6)
    }

    /// The same meaning, told the plain way.
    fn matches_plainly(text: &[u8], pattern: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) | (b" *", []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| matches_plainly(&text[n..], rest)),
            ([b'?', rest @ ..], [_, left @ ..]) => matches_plainly(left, rest),
            ([a, rest @ ..], [b, left @ ..]) => a == b && matches_plainly(left, rest),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_it_says(text in "[ab ]{0,8}", pattern in "[ab *?]{0,6}") {
            let want = matches_plainly(text.as_bytes(), pattern.as_bytes());
            prop_assert_eq!(matches(&text, &pattern), want);
        }

        #[test]
        fn a_delegate_never_may_more(
            server in some_rules(), project in some_rules(), session in some_rules(),
            delegate in some_rules(), permission in "[ab]{1,2}",
            patterns in prop::collection::vec("[ab ]{0,4}", 0..3),
        ) {
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let mut layers =
                Layers { server: &server, project: &project, session: &session, delegate: &[] };
            let before = decide(&layers, &permission, &patterns).action;
            layers.delegate = &delegate;
            let after = decide(&layers, &permission, &patterns);
            prop_assert!(!before.is_stricter_than(after.action));
            prop_assert!(after.rule.is_none_or(|rule| rule.action == after.action));
        }
    }
}
