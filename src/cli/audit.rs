//! `bowline audit`

use super::upkeep::{Directory, count, failed};
use super::{complain, exit};
use crate::clock::{Clock, SystemClock};
use crate::model::audit::Kind;
use crate::model::ids::GrantId;
use crate::model::page::Page;
use crate::model::rights::{Right, Rights};
use crate::upkeep::audit::{Expected, Filter, Told, Verified, hex, look, verify};
use clap::Args;
use data_encoding::BASE32HEX_NOPAD;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;

/// Show who did what, under which grant, and check that nobody changed the record
///
/// Every redemption, change, grant, revocation and refusal is an entry in a chain: each one holds a hash of
/// the one before it. It only reads, and the server may go on meanwhile.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline audit                                    the newest entries, oldest first
  bowline audit --actor reviewer --kind changed    what the reviewer did
  bowline audit --grant 0s3ge1o7… --derived        what was done under a grant and all it was handed on to
  bowline audit --since 2h --kind denied --json
  bowline audit --verify                           ends with 4 if the record was changed
  bowline audit --verify --expect 1289:5f6d83ac    and that it still holds an entry you wrote down

The last line of --verify is what to write down, somewhere else: whoever can change the database can make a
whole new chain, but not one that holds that hash.")]
pub(super) struct Audit {
    #[command(flatten)]
    directory: Directory,

    /// Entries under or about this grant
    #[arg(long, value_name = "ID")]
    grant: Option<Grant>,

    /// With --grant: and under everything derived from it
    #[arg(long, requires = "grant")]
    derived: bool,

    /// Entries under grants that were made for this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Entries about the project, session or share with this id
    #[arg(long, value_name = "ID")]
    object: Option<String>,

    /// Entries of this kind; may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<KindName>,

    /// Not older than this: a duration such as 90s, 15m, 2h or 7d, or milliseconds since 1970
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,

    /// Older than this, likewise
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,

    /// How many, the newest there are
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// Check the whole chain, and that it tells of every op as it is
    #[arg(long)]
    verify: bool,

    /// With --verify: an entry you wrote down must still be there; may be given several times
    #[arg(long, value_name = "NUMBER:HASH", requires = "verify")]
    expect: Vec<Expect>,
}

#[derive(Debug, Clone)]
struct Grant(GrantId);

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = BASE32HEX_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok();
        let id = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        id.map(|id| Self(GrantId(id))).ok_or_else(|| {
            "a grant is 26 letters and digits, as this command and the path of a ref show it".into()
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct KindName(Kind);

impl FromStr for KindName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Kind::ALL.into_iter().find(|kind| kind.word() == text).map(Self).ok_or_else(|| {
            let words: Vec<_> = Kind::ALL.iter().map(|kind| kind.word()).collect();
            format!("there is no such kind; there are {}", words.join(", "))
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum When {
    Ago { ms: u64 },
    AtMs(u64),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = "a time is a duration such as 90s, 15m, 2h or 7d, or milliseconds since 1970";
        if let Ok(at_ms) = text.parse() {
            return Ok(When::AtMs(at_ms));
        }
        let seconds = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
        let (number, seconds) = seconds.ok_or(help)?;
        let number: u64 = number.parse().map_err(|_| help)?;
        Ok(When::Ago { ms: number.saturating_mul(seconds * 1_000) })
    }
}

impl When {
    fn at_ms(self) -> u64 {
        match self {
            When::AtMs(at_ms) => at_ms,
            When::Ago { ms } => SystemClock.now_ms().saturating_sub(ms),
        }
    }
}

#[derive(Debug, Clone)]
struct Expect(Expected);

impl FromStr for Expect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').and_then(|(number, hash)| {
            let hash = hash.trim();
            let fits = hash.len() >= 8 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            Some((number.trim().parse().ok()?, fits.then(|| hash.to_owned())?))
        });
        match parts {
            Some((number, hash)) => Ok(Self(Expected { number, hash })),
            None => {
                Err("an entry is written as its number, a colon, and 8 or more digits of its hash"
                    .into())
            }
        }
    }
}

impl Audit {
    pub(super) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(Vec::new()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        if self.verify {
            let expected: Vec<_> = self.expect.iter().map(|Expect(it)| it.clone()).collect();
            return match verify(&settings.data, &expected) {
                Ok(verified) => self.report_verified(&verified),
                Err(error) => failed(&error),
            };
        }
        let filter = Filter {
            grant: self.grant.as_ref().map(|Grant(id)| *id),
            derived: self.derived,
            actor: self.actor.clone().unwrap_or_default(),
            object_id: self.object.clone().unwrap_or_default(),
            from_ms: self.since.map_or(0, When::at_ms),
            until_ms: self.until.map(When::at_ms),
            kinds: self.kind.iter().map(|KindName(kind)| *kind as u16).collect(),
        };
        // From the newest back, page by page, until there are enough.
        let mut found = Vec::new();
        let mut after = 0;
        let mut more = true;
        while more && found.len() < self.limit as usize {
            let left = self.limit - found.len() as u32;
            match look(&settings.data, &filter, Page::new(after, left, true)) {
                Ok((page, _)) => {
                    (after, more) = (page.next.0, page.more);
                    found.extend(page.items);
                }
                Err(error) => return failed(&error),
            }
        }
        found.reverse();
        let mut out = io::stdout().lock();
        let written = found.iter().try_for_each(|told| match self.directory.json {
            true => writeln!(out, "{}", as_json(told)),
            false => writeln!(out, "{}", as_line(told)),
        });
        match written {
            // A reader that went away has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                complain(exit::FAILED, error)
            }
            _ => ExitCode::SUCCESS,
        }
    }

    fn report_verified(&self, verified: &Verified) -> ExitCode {
        let Verified { entries, oldest, head, problems } = verified;
        let mut out = io::stdout().lock();
        let _ = match self.directory.json {
            true => writeln!(
                out,
                "{}",
                serde_json::json!({
                    "ok": problems.is_empty(),
                    "entries": entries,
                    "oldest": oldest,
                    "head": { "number": head.number, "hash": hex(&head.hash) },
                    "problems": problems,
                })
            ),
            false => problems
                .iter()
                .try_for_each(|problem| writeln!(out, "{problem}"))
                .and_then(|()| match problems.is_empty() {
                    true => writeln!(
                        out,
                        "{} entries from {oldest} on: the chain is whole",
                        count(*entries)
                    ),
                    false => writeln!(out, "the record was changed: keep a copy of the database"),
                })
                .and_then(|()| writeln!(out, "{}:{}", head.number, hex(&head.hash))),
        };
        if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::PROBLEMS) }
    }
}

/// The word for a kind, also for one that only a newer version knows.
fn word(told: &Told) -> String {
    match Kind::from_number(told.entry.kind) {
        Some(kind) => kind.word().to_owned(),
        None => format!("kind-{}", told.entry.kind),
    }
}

fn missing(told: &Told) -> Option<Right> {
    Rights::from_bits(told.entry.missing).each().next()
}

fn as_line(told: &Told) -> String {
    let entry = &told.entry;
    let who = match &told.author {
        None => "-".to_owned(),
        Some(author) if author.actors.is_empty() => format!("({})", author.grant),
        Some(author) => format!("{} ({})", author.actors.join(" for "), author.grant),
    };
    let object = match &told.object {
        None => String::new(),
        Some((kind, id)) => format!("  {} {id}", kind.word()).trim_end().to_owned(),
    };
    let mut line =
        format!("{:>8}  {}  {:<22} {who}{object}", told.number, utc(entry.at_ms), word(told));
    // A ref that is redeemed is the grant's own.
    let own = told.author.as_ref().map(|author| author.grant);
    if let Some(subject) = told.subject.filter(|subject| Some(*subject) != own) {
        line.push_str(&format!("  grant {subject}"));
    }
    if !entry.code.is_empty() {
        line.push_str(&format!("  {}", entry.code));
    }
    if let Some(right) = missing(told) {
        line.push_str(&format!(" ({})", right.word()));
    }
    match Kind::from_number(entry.kind) {
        Some(Kind::Started) => line.push_str(&format!("  start {}", entry.count)),
        Some(Kind::Pruned) => line.push_str(&format!("  entries up to {}", entry.count)),
        _ if entry.count > 1 => line.push_str(&format!("  × {}", count(entry.count))),
        _ => {}
    }
    line
}

fn as_json(told: &Told) -> serde_json::Value {
    let entry = &told.entry;
    serde_json::json!({
        "number": told.number,
        "atMs": entry.at_ms,
        "kind": word(told),
        "grant": told.author.as_ref().map(|author| author.grant.to_string()),
        "actors": told.author.as_ref().map(|author| author.actors.clone()).unwrap_or_default(),
        "object": told.object.as_ref().map(|(kind, id)| serde_json::json!({ "kind": kind.word(), "id": id })),
        "subject": told.subject.map(|subject| subject.to_string()),
        "count": entry.count,
        "firstPosition": entry.position,
        "code": entry.code,
        "right": missing(told).map(Right::word),
        "hash": hex(&told.hash),
    })
}

/// A time for people: date and time of day, in UTC.
fn utc(at_ms: u64) -> String {
    let (days, in_day) = (at_ms / 86_400_000, at_ms % 86_400_000 / 1_000);
    // Days into years of 400, 100, 4 and 1, beginning with March, so that a leap day is the last of its year.
    let since = days + 719_468;
    let (era, day) = (since / 146_097, since % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_write_them() {
        let table = [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_709_251_199_999, "2024-02-29 23:59:59"),
            (1_709_251_200_000, "2024-03-01 00:00:00"),
            (4_102_444_800_000, "2100-01-01 00:00:00"),
        ];
        for (at_ms, want) in table {
            assert_eq!(utc(at_ms), want);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        assert!("2h".parse::<When>().is_ok() && "1700000000000".parse::<When>().is_ok());
        assert!("soon".parse::<When>().unwrap_err().contains("2h"));
        assert!("5x".parse::<When>().is_err() && "h".parse::<When>().is_err());
        assert!("12:5f6d83ac".parse::<Expect>().is_ok());
        for bad in ["12", "12:", "12:5f6d", "x:5f6d83ac", "12:5f6d83ag"] {
            assert!(bad.parse::<Expect>().is_err(), "{bad}");
        }
        assert!("nonsense".parse::<KindName>().unwrap_err().contains("redeemed"));
        assert!("0s3ge1o70s3ge1o70s3ge1o70s".parse::<Grant>().is_ok());
        assert!("0s3ge".parse::<Grant>().is_err());
    }
}
