//! The string that redeems a grant, byte by byte.
//!
//! ```text
//! bowline://127.0.0.1:4747/<grant>#bwl1_<secret and checksum>
//! ```
//!
//! | part | bytes | why |
//! |---|---|---|
//! | `bowline://` | | a person sees what it is, and a program what opens it |
//! | address | | a hint where to connect; no authority, and not looked at when redeeming |
//! | grant | 16 | public: names the row without giving anything away |
//! | `bwl1_` | | a prefix secret scanners can look for, and the version of what follows |
//! | secret | 32 | random, so guessing and searching a stolen table for it are both hopeless |
//! | checksum | 4 | over grant and secret: a slip of the hand is told from a dead ref without asking |
//!
//! The secret stands behind `#`, because what is behind `#` stays out of most logs. The server keeps
//! only a keyed hash of it ([`Secret::verifier`]). `Debug` of these types never shows it.

use crate::limits::REF_TEXT_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::GrantId;
use data_encoding::BASE32HEX_NOPAD;
use std::fmt;
use zeroize::Zeroize;

const SCHEME: &str = "bowline://";
const SECRET_PREFIX: &str = "bwl1_";
const SECRET_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// The private half of a sturdy ref.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Secret {
    /// A secret made of fresh randomness.
    pub fn new(random: [u8; SECRET_BYTES]) -> Self {
        Self(random)
    }

    /// The secret of a grant that its maker gave a seed for: the same whenever both are the same. The store's
    /// key goes in too, so that a poor seed does not let everybody who sees grant ids compute the secret.
    pub fn from_seed(seed: &[u8; SECRET_BYTES], grant: GrantId, key: &VerifierKey) -> Self {
        let mut salt = blake3::derive_key("bowline ref secret v1", &key.0);
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(&grant.0).update(&salt);
        salt.zeroize();
        Self(*hasher.finalize().as_bytes())
    }

    /// What the store keeps instead of the secret. The key belongs to one store, so a verifier copied
    /// into another one fits nothing there.
    pub fn verifier(&self, key: &VerifierKey) -> Verifier {
        Verifier(blake3::keyed_hash(&key.0, &self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The key under which one store hashes secrets.
#[derive(Clone)]
pub struct VerifierKey(pub [u8; 32]);

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifierKey(..)")
    }
}

/// The keyed hash of a secret. Comparing two takes the same time whatever they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verifier(blake3::Hash);

impl Verifier {
    /// As read from the store.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(blake3::Hash::from_bytes(bytes))
    }

    /// As written to the store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

/// A grant with the secret that redeems it.
#[derive(Debug, Clone)]
pub struct SturdyRef {
    /// Where to connect, as far as the maker of the ref knew.
    pub address: String,
    /// Which grant.
    pub grant: GrantId,
    /// What proves it.
    pub secret: Secret,
}

/// A text that is no sturdy ref. It never repeats the text, which may hold most of a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is far too long.
    #[error("a sturdy ref is at most {REF_TEXT_BYTES_MAX} bytes long")]
    TooLong,
    /// It has another form.
    #[error("a sturdy ref looks like bowline://host:port/<grant>#bwl1_<secret>")]
    OtherForm,
    /// It is one, damaged.
    #[error("the sturdy ref is damaged: its checksum does not fit; copy it again, whole")]
    Damaged,
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        Code::RefMalformed
    }
}

impl SturdyRef {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if text.len() > REF_TEXT_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let rest = text.trim().strip_prefix(SCHEME).ok_or(Malformed::OtherForm)?;
        let (address, rest) = rest.split_once('/').ok_or(Malformed::OtherForm)?;
        let (grant, secret) = rest.split_once('#').ok_or(Malformed::OtherForm)?;
        let secret = secret.strip_prefix(SECRET_PREFIX).ok_or(Malformed::OtherForm)?;

        let grant: [u8; 16] = decoded(grant)?;
        let mut both: [u8; SECRET_BYTES + CHECKSUM_BYTES] = decoded(secret)?;
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(&both[..SECRET_BYTES]);
        let found =
            Self { address: address.to_owned(), grant: GrantId(grant), secret: Secret(secret) };
        secret.zeroize();
        let fits = both[SECRET_BYTES..] == found.checksum();
        both.zeroize();
        if fits { Ok(found) } else { Err(Malformed::Damaged) }
    }

    /// The text form. It shows the secret: it belongs into a file only the owner can read, or to the
    /// one it is meant for, and never into a log.
    pub fn reveal(&self) -> String {
        let mut both = self.secret.0.to_vec();
        both.extend(self.checksum());
        let mut secret = BASE32HEX_NOPAD.encode(&both).to_ascii_lowercase();
        both.zeroize();
        let text = format!("{SCHEME}{}/{}#{SECRET_PREFIX}{secret}", self.address, self.grant);
        secret.zeroize();
        text
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        let mut hasher = blake3::Hasher::new_derive_key("bowline sturdy ref checksum v1");
        hasher.update(&self.grant.0).update(&self.secret.0);
        let mut sum = [0; CHECKSUM_BYTES];
        hasher.finalize_xof().fill(&mut sum);
        sum
    }
}

fn decoded<const N: usize>(text: &str) -> Result<[u8; N], Malformed> {
    let mut bytes = BASE32HEX_NOPAD
        .decode(text.to_ascii_uppercase().as_bytes())
        .map_err(|_| Malformed::Damaged)?;
    let fixed = <[u8; N]>::try_from(bytes.as_slice()).map_err(|_| Malformed::Damaged);
    bytes.zeroize();
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> SturdyRef {
        SturdyRef {
            address: "127.0.0.1:4747".into(),
            grant: GrantId([3; 16]),
            secret: Secret([0xab; 32]),
        }
    }

    #[test]
    fn the_text_form_survives_a_round_trip_and_stray_blanks() {
        let text = example().reveal();
        assert!(text.starts_with("bowline://127.0.0.1:4747/") && text.contains("#bwl1_"), "{text}");
        for text in [text.clone(), format!(" {text}\n"), text.replace("127.0.0.1:4747", "")] {
            let back = SturdyRef::parse(&text).unwrap();
            assert_eq!((back.grant, back.secret.0), (example().grant, example().secret.0));
        }
    }

    #[test]
    fn every_single_slip_is_noticed() {
        let text = example().reveal();
        let start = text.find("4747/").unwrap() + 5;
        for at in start..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert!(SturdyRef::parse(&String::from_utf8(other).unwrap()).is_err(), "at {at}");
            assert!(SturdyRef::parse(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn texts_of_another_form_are_refused() {
        let table = [
            ("", Malformed::OtherForm),
            ("hello", Malformed::OtherForm),
            ("bowline://", Malformed::OtherForm),
            ("bowline://h/abc", Malformed::OtherForm),
            ("bowline://h/abc#def", Malformed::OtherForm),
            ("bowline://h/abc#bwl1_def", Malformed::Damaged),
            ("bowline://h/äöü#bwl1_äöü", Malformed::Damaged),
        ];
        for (text, why) in table {
            assert_eq!(SturdyRef::parse(text).unwrap_err(), why, "{text}");
        }
        assert_eq!(SturdyRef::parse(&"x".repeat(1000)).unwrap_err(), Malformed::TooLong);
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown =
            format!("{:?} {:?}", example(), example().secret.verifier(&VerifierKey([1; 32])));
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn a_verifier_fits_one_secret_under_one_key() {
        let (key, other) = (VerifierKey([1; 32]), VerifierKey([2; 32]));
        let verifier = example().secret.verifier(&key);
        assert_eq!(verifier, example().secret.verifier(&key));
        assert_ne!(verifier, example().secret.verifier(&other));
        assert_ne!(verifier, Secret([0xac; 32]).verifier(&key));
        assert_eq!(verifier, Verifier::from_bytes(*verifier.as_bytes()));
    }
}
