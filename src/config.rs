//! Settings, read once: defaults, then the file, then the environment, then flags; the later wins.

use crate::limits::{Limits, OutOfRange};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fs, io, thread};

/// Where the server listens if nothing else is said.
pub const TCP_DEFAULT: &str = "127.0.0.1:4747";
/// Name of the Unix socket in the data directory if nothing else is said.
pub const UNIX_DEFAULT: &str = "bowline.sock";
/// What is logged if nothing else is said.
pub const LOG_DEFAULT: &str = "info";
/// What a Unix socket's address has room for.
const UNIX_PATH_BYTES_MAX: usize = 107;
const WORKERS_MAX: usize = 256;

/// All settings of `bowline serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The data directory.
    pub data: PathBuf,
    /// The Unix socket, unless it is off.
    pub unix: Option<PathBuf>,
    /// The TCP address, unless it is off.
    pub tcp: Option<SocketAddr>,
    /// Worker threads.
    pub workers: usize,
    /// Directories beneath which worktrees may lie.
    pub worktree_roots: Vec<PathBuf>,
    /// Whether worktrees are watched, so that only what changes is looked at.
    pub watch_worktrees: bool,
    /// Limits.
    pub limits: Limits,
    /// What to log.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "human" => Ok(LogFormat::Human),
            "json" => Ok(LogFormat::Json),
            _ => Err("expected human or json"),
        }
    }
}

/// What flags and environment say; each field may be silent.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The settings file.
    pub config: Option<PathBuf>,
    /// See [`Settings::data`].
    pub data: Option<PathBuf>,
    /// See [`Settings::unix`].
    pub unix: Option<Switch<PathBuf>>,
    /// See [`Settings::tcp`].
    pub tcp: Option<Switch<SocketAddr>>,
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// See [`Settings::worktree_roots`]; empty if nothing is said.
    pub worktree_roots: Vec<PathBuf>,
    /// See [`Settings::watch_worktrees`].
    pub watch_worktrees: Option<bool>,
    /// `name=value` pairs for [`Settings::limits`].
    pub limits: Vec<LimitOverride>,
    /// See [`Settings::log`].
    pub log: Option<String>,
    /// See [`Settings::log_format`].
    pub log_format: Option<LogFormat>,
}

/// Something that can be given or switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch<T> {
    /// The word `off`.
    Off,
    /// Anything else.
    On(T),
}

impl FromStr for Switch<PathBuf> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("the path is empty; leave it out, or say off".into()),
            "off" => Ok(Switch::Off),
            path => Ok(Switch::On(path.into())),
        }
    }
}

impl FromStr for Switch<SocketAddr> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Switch::Off),
            address => match address.parse() {
                Ok(address) => Ok(Switch::On(address)),
                Err(_) => Err(format!("{address:?} is not an address like {TCP_DEFAULT}, or off")),
            },
        }
    }
}

impl<T> Switch<T> {
    fn into_option(self) -> Option<T> {
        match self {
            Switch::Off => None,
            Switch::On(value) => Some(value),
        }
    }
}

/// One limit set by a flag or the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverride {
    name: String,
    value: i64,
}

impl FromStr for LimitOverride {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("expected name=value")?;
        let value = value.trim().replace('_', "");
        let value = value.parse().map_err(|_| format!("{value:?} is not a whole number"))?;
        Ok(Self { name: name.trim().to_owned(), value })
    }
}

/// The settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data: Option<PathBuf>,
    unix: Option<String>,
    tcp: Option<String>,
    workers: Option<usize>,
    worktree_roots: Option<Vec<PathBuf>>,
    watch_worktrees: Option<bool>,
    log: Option<String>,
    log_format: Option<LogFormat>,
    #[serde(default)]
    limits: toml::Table,
}

/// A setting that cannot be used. The text names it, and where it came from if that is a file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the settings file {} cannot be read: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not one.
    #[error("the settings file {} cannot be understood: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: toml::de::Error,
    },
    /// A value makes no sense.
    #[error("setting {name}: {why}")]
    Value {
        /// Which.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// A limit has a silly value.
    #[error("setting {0}")]
    Limit(#[from] OutOfRange),
}

fn value(name: &'static str, why: impl Into<String>) -> ConfigError {
    ConfigError::Value { name, why: why.into() }
}

fn switch<T>(name: &'static str, text: &str) -> Result<Option<T>, ConfigError>
where
    Switch<T>: FromStr<Err = String>,
{
    match text.parse::<Switch<T>>() {
        Ok(given) => Ok(given.into_option()),
        Err(why) => Err(value(name, why)),
    }
}

impl Settings {
    /// Puts everything together. `var` looks up an environment variable.
    pub fn load(
        overrides: Overrides,
        var: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let file = File::load(overrides.config.as_deref(), &var)?;
        let data = match overrides.data.or(file.data) {
            Some(data) => data,
            None => default_data(&var)?,
        };

        let unix = match (overrides.unix, file.unix) {
            (Some(given), _) => given.into_option(),
            (None, Some(text)) => switch("unix", &text)?,
            (None, None) => Some(data.join(UNIX_DEFAULT)),
        };
        if let Some(path) =
            unix.as_ref().filter(|path| path.as_os_str().len() > UNIX_PATH_BYTES_MAX)
        {
            let why = format!(
                "{} is longer than the {UNIX_PATH_BYTES_MAX} bytes a Unix socket's address has room \
                 for; choose a shorter path, or off",
                path.display()
            );
            return Err(value("unix", why));
        }

        let tcp = match (overrides.tcp, file.tcp) {
            (Some(given), _) => given.into_option(),
            (None, text) => switch("tcp", text.as_deref().unwrap_or(TCP_DEFAULT))?,
        };
        if let Some(address) = tcp.filter(|address| !address.ip().is_loopback()) {
            let why = format!(
                "{address} is not a loopback address; refs would cross the network in the clear, \
                 and this version has no TLS"
            );
            return Err(value("tcp", why));
        }
        if unix.is_none() && tcp.is_none() {
            return Err(value("tcp", "both unix and tcp are off, so nobody could connect"));
        }

        let cores = thread::available_parallelism().map_or(2, usize::from).min(WORKERS_MAX);
        let workers = overrides.workers.or(file.workers).unwrap_or(cores);
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(value("workers", format!("{workers} is not between 1 and {WORKERS_MAX}")));
        }

        let mut limits = file.limits;
        for LimitOverride { name, value } in overrides.limits {
            limits.insert(name, value.into());
        }
        let limits: Limits = limits
            .try_into()
            .map_err(|error: toml::de::Error| value("limits", error.to_string().trim_end()))?;
        limits.check()?;
        let log = overrides.log.or(file.log).unwrap_or_else(|| LOG_DEFAULT.into());
        let log_format = overrides.log_format.or(file.log_format).unwrap_or_default();
        let worktree_roots = match (overrides.worktree_roots, file.worktree_roots) {
            (given, _) if !given.is_empty() => given,
            (_, Some(given)) => given,
            (_, None) => var("HOME").into_iter().collect(),
        };
        if let Some(relative) = worktree_roots.iter().find(|root| !root.is_absolute()) {
            let why = format!("{} is not an absolute path", relative.display());
            return Err(value("worktree_roots", why));
        }
        let watch_worktrees = overrides.watch_worktrees.or(file.watch_worktrees).unwrap_or(true);
        Ok(Self {
            data,
            unix,
            tcp,
            workers,
            worktree_roots,
            watch_worktrees,
            limits,
            log,
            log_format,
        })
    }
}

impl File {
    fn load(
        given: Option<&Path>,
        var: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let usual = var("XDG_CONFIG_HOME")
            .or_else(|| var("HOME").map(|home| home.join(".config")))
            .map(|dir| dir.join("bowline/config.toml"));
        let Some(path) = given.map(Path::to_owned).or(usual) else {
            return Ok(Self::default());
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // Only a file somebody named must be there.
            Err(error) if given.is_none() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(ConfigError::Unreadable { path, error }),
        };
        toml::from_str(&text).map_err(|error| ConfigError::File { path, error })
    }
}

/// Looks up a variable of the process; an empty one counts as absent, as XDG wants it.
pub fn process_env(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `$XDG_DATA_HOME/bowline`, or where that is by default.
fn default_data(var: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    var("XDG_DATA_HOME")
        .or_else(|| var("HOME").map(|home| home.join(".local/share")))
        .map(|dir| dir.join("bowline"))
        .ok_or_else(|| {
            value("data", "neither XDG_DATA_HOME nor HOME is set; say where with --data")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, overrides: Overrides) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, file).unwrap();
        let overrides = Overrides { config: Some(path), ..overrides };
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/ada"));
        Settings::load(overrides, home).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_gives_the_defaults() {
        let settings = load("", Overrides::default()).unwrap();
        assert_eq!(settings.data, Path::new("/home/ada/.local/share/bowline"));
        assert_eq!(settings.unix.unwrap(), settings.data.join("bowline.sock"));
        assert_eq!(settings.tcp, Some(TCP_DEFAULT.parse().unwrap()));
        assert_eq!(settings.limits, Limits::default());
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = "data = '/a'\ntcp = '127.0.0.1:1'\nworkers = 3\n[limits]\nobjects_max = 5\nconnections_max = 6\n";
        let from_file = load(file, Overrides::default()).unwrap();
        assert_eq!((from_file.workers, from_file.limits.objects_max), (3, 5));

        let overrides = Overrides {
            data: Some("/b".into()),
            unix: Some(Switch::Off),
            tcp: Some("127.0.0.1:2".parse().unwrap()),
            limits: vec!["objects_max=7_000".parse().unwrap()],
            ..Overrides::default()
        };
        let both = load(file, overrides).unwrap();
        assert_eq!((both.data, both.unix), (PathBuf::from("/b"), None));
        assert_eq!(both.tcp.unwrap().port(), 2);
        assert_eq!(
            (both.workers, both.limits.objects_max, both.limits.connections_max),
            (3, 7000, 6)
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let table = [
            ("dta = '/a'", "dta"),
            ("workers = 'many'", "workers"),
            ("workers = 0", "setting workers: 0"),
            ("log_format = 'loud'", "log_format"),
            ("tcp = 'here'", "setting tcp: \"here\""),
            ("tcp = '0.0.0.0:4747'", "setting tcp: 0.0.0.0:4747 is not a loopback address"),
            ("tcp = 'off'\nunix = 'off'", "both unix and tcp are off"),
            ("[limits]\nobject_max = 1", "setting limits: unknown field `object_max`"),
            ("[limits]\nobjects_max = 0", "setting limits.objects_max is 0"),
            ("[limits]\nobjects_max = -1", "objects_max"),
        ];
        for (file, named) in table {
            let error = load(file, Overrides::default()).unwrap_err();
            assert!(error.contains(named), "{file}: {error}");
        }
        let long = format!("unix = '/{}'", "x".repeat(120));
        assert!(load(&long, Overrides::default()).unwrap_err().contains("setting unix"));
        assert!("objects_max".parse::<LimitOverride>().is_err());
        assert!("objects_max=lots".parse::<LimitOverride>().unwrap_err().contains("lots"));
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let overrides =
            Overrides { config: Some("/nowhere/config.toml".into()), ..Default::default() };
        let error = Settings::load(overrides, |_| None).unwrap_err().to_string();
        assert!(error.contains("/nowhere/config.toml cannot be read"), "{error}");
        let error = Settings::load(Overrides::default(), |_| None).unwrap_err().to_string();
        assert!(error.contains("setting data") && error.contains("--data"), "{error}");
    }
}
