//! What is known about a session besides its log.

use crate::limits::{DIRECTORY_BYTES_MAX, TITLE_BYTES_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, MessageId, OpId, SessionId};
use crate::model::permission::{self, Rule};
use crate::model::turn::Summary;
use serde::{Deserialize, Serialize};

/// Which model something is for, or was made by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Model {
    /// Whose it is.
    pub provider_id: String,
    /// Its name there.
    pub model_id: String,
    /// Which of its kinds; may be empty.
    pub variant: String,
}

/// What a client says about a session. Numbers in the stored form are counted from the top: only add at the
/// end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// Where its agent works.
    pub directory: String,
    /// Where in the worktree; none if that is not said.
    pub path: Option<String>,
    /// Its agent.
    pub agent: String,
    /// Its model.
    pub model: Model,
    /// The version of the client that wrote it.
    pub version: String,
    /// A JSON object of the client's own.
    pub metadata: String,
    /// A JSON object with everything else.
    pub rest: String,
    /// What its agents may do without asking.
    pub rules: Vec<Rule>,
    /// When it was put away, if it was.
    pub archived_at_ms: Option<i64>,
    /// What came of it, where a client knows better than its turns.
    pub summary: Option<Summary>,
}

/// One thing about a session that is to be different. The order of the variants is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Another title.
    Title(String),
    /// Other metadata.
    Metadata(String),
    /// More rules.
    AddRules(Vec<Rule>),
    /// Other rules.
    SetRules(Vec<Rule>),
    /// Put away.
    Archive(i64),
    /// Taken out again.
    Unarchive,
    /// Another agent.
    Agent(String),
    /// Another model.
    Model(Model),
    /// Another directory.
    Directory(String),
    /// Another place in the worktree.
    Path(String),
    /// Another version.
    Version(String),
    /// Other fields the server has no word for.
    Rest(String),
    /// What came of it.
    Summary(Summary),
}

/// What is wrong with a change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Longer than anybody reads.
    #[error("the title is {bytes} bytes long; the most accepted is {TITLE_BYTES_MAX}")]
    TitleTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Longer than a kernel takes.
    #[error("a path is {bytes} bytes long; the most accepted is {DIRECTORY_BYTES_MAX}")]
    PathTooLong {
        /// Its length.
        bytes: usize,
    },
    /// It would garble a log line or a table.
    #[error("a path, an agent, a model or a version holds a control character")]
    Unprintable,
    /// No ruleset.
    #[error(transparent)]
    Rules(#[from] permission::Malformed),
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        match self {
            Malformed::TitleTooLong { .. } => Code::TitleTooLong,
            Malformed::PathTooLong { .. } | Malformed::Unprintable => Code::OpMalformed,
            Malformed::Rules(malformed) => malformed.code(),
        }
    }
}

impl Change {
    /// Whether it makes sense. What is JSON was checked to be an object before.
    pub fn check(&self) -> Result<(), Malformed> {
        let short = |text: &str, max: usize| match text.len() {
            bytes if bytes > max => Err(Malformed::PathTooLong { bytes }),
            _ if text.contains(char::is_control) => Err(Malformed::Unprintable),
            _ => Ok(()),
        };
        match self {
            Change::Title(title) if title.len() > TITLE_BYTES_MAX => {
                Err(Malformed::TitleTooLong { bytes: title.len() })
            }
            Change::AddRules(rules) | Change::SetRules(rules) => Ok(permission::check(rules)?),
            Change::Directory(text) | Change::Path(text) => short(text, DIRECTORY_BYTES_MAX),
            Change::Agent(text) | Change::Version(text) => short(text, TITLE_BYTES_MAX),
            Change::Model(model) => [&model.provider_id, &model.model_id, &model.variant]
                .into_iter()
                .try_for_each(|text| short(text, TITLE_BYTES_MAX)),
            _ => Ok(()),
        }
    }
}

impl Details {
    /// With one thing different; the title, if that is it.
    pub fn change(&mut self, change: &Change) -> Result<Option<String>, Malformed> {
        match change.clone() {
            Change::Title(title) => return Ok(Some(title)),
            Change::Metadata(metadata) => self.metadata = metadata,
            Change::AddRules(rules) => {
                self.rules.extend(rules);
                permission::check(&self.rules)?;
            }
            Change::SetRules(rules) => self.rules = rules,
            Change::Archive(at_ms) => self.archived_at_ms = Some(at_ms),
            Change::Unarchive => self.archived_at_ms = None,
            Change::Agent(agent) => self.agent = agent,
            Change::Model(model) => self.model = model,
            Change::Directory(directory) => self.directory = directory,
            Change::Path(path) => self.path = Some(path),
            Change::Version(version) => self.version = version,
            Change::Rest(rest) => self.rest = rest,
            Change::Summary(summary) => self.summary = Some(summary),
        }
        Ok(None)
    }
}

/// Where a fork left its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The parent.
    pub session: SessionId,
    /// Where its log ended.
    pub cursor: Cursor,
    /// The last message that was copied.
    pub message: Option<MessageId>,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// What.
    pub content: String,
    /// How far it is.
    pub status: String,
    /// How much it matters.
    pub priority: String,
    /// A JSON object with everything else.
    pub rest: String,
}

/// What a file came to in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    /// Which.
    pub file: String,
    /// Added, deleted or modified.
    pub status: String,
    /// Lines added.
    pub additions: u64,
    /// Lines taken away.
    pub deletions: u64,
    /// In unified text.
    pub patch: String,
    /// A JSON object with everything else.
    pub rest: String,
}

/// The title of a session nobody gave one.
pub fn default_title(has_parent: bool, now_ms: u64) -> String {
    let kind = if has_parent { "Child" } else { "New" };
    format!("{kind} session - {}", instant(now_ms))
}

/// The title of a fork: numbered by how often the line was forked.
pub fn fork_title(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (fork #"));
    let next = numbered
        .and_then(|(stem, number)| Some((stem, number.parse::<u64>().ok()?.checked_add(1)?)));
    let made = match next {
        Some((stem, number)) => format!("{stem} (fork #{number})"),
        None => format!("{title} (fork #1)"),
    };
    match made.len() {
        bytes if bytes > TITLE_BYTES_MAX => title.to_owned(),
        _ => made,
    }
}

/// An instant as people and other programs write it: UTC with milliseconds.
fn instant(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Days since 1970 to a date, by eras of 400 years that begin in March, so that leap days come last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let of_era_year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_year + of_era_year / 4 - of_era_year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = of_era_year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

const ADJECTIVES: [&str; 32] = [
    "brave", "bright", "calm", "clever", "cosmic", "crisp", "curious", "eager", "gentle",
    "glowing", "happy", "hidden", "jolly", "keen", "kind", "lucky", "mighty", "misty", "neon",
    "nimble", "playful", "proud", "quick", "quiet", "shiny", "silent", "stellar", "sunny", "swift",
    "tidy", "warm", "witty",
];
const NOUNS: [&str; 32] = [
    "anchor", "bay", "beacon", "bell", "bird", "boat", "breeze", "canyon", "cloud", "comet",
    "cove", "deck", "eagle", "falcon", "fjord", "forest", "harbor", "hull", "island", "knot",
    "lagoon", "mast", "meadow", "moon", "oar", "otter", "reef", "river", "sail", "squid", "tide",
    "wave",
];

/// Two words to tell a session by, made from the op that made it.
pub fn slug(op: OpId) -> String {
    let pick = |list: &[&'static str; 32], byte: u8| list[usize::from(byte % 32)];
    // The middle of an op id that grows with time is random, too.
    format!("{}-{}", pick(&ADJECTIVES, op.0[14]), pick(&NOUNS, op.0[15]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_titles_tell_the_kind_and_the_instant() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_786_706_395_136, "2026-08-14T11:19:55.136Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(default_title(false, ms), format!("New session - {text}"));
            assert_eq!(default_title(true, ms), format!("Child session - {text}"));
        }
    }

    #[test]
    fn forks_are_numbered() {
        for (title, fork) in [
            ("X", "X (fork #1)"),
            ("X (fork #1)", "X (fork #2)"),
            ("X (fork #9)", "X (fork #10)"),
            ("X (fork #a)", "X (fork #a) (fork #1)"),
            ("", " (fork #1)"),
        ] {
            assert_eq!(fork_title(title), fork);
        }
        let long = "x".repeat(TITLE_BYTES_MAX);
        assert_eq!(fork_title(&long), long);
    }

    #[test]
    fn changes_are_checked_and_applied() {
        let long = "x".repeat(TITLE_BYTES_MAX + 1);
        let too_long = Change::Title(long).check().unwrap_err();
        assert_eq!(too_long.code(), Code::TitleTooLong);
        assert_eq!(Change::Agent("a\nb".into()).check(), Err(Malformed::Unprintable));
        let mut details = Details::default();
        assert_eq!(details.change(&Change::Title("t".into())), Ok(Some("t".into())));
        for (change, archived) in [(Change::Archive(-5), Some(-5)), (Change::Unarchive, None)] {
            details.change(&change).unwrap();
            assert_eq!(details.archived_at_ms, archived);
        }
    }
}
