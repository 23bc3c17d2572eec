//! `bowline serve`

use super::{complain, exit, logging};
use crate::clock::SystemClock;
use crate::config::{LimitOverride, LogFormat, Overrides, Settings, Switch, process_env};
use crate::server::{self, Ready, RootRef, ServeError};
use clap::Args;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Start the server
///
/// Without any setting it keeps its data in $XDG_DATA_HOME/bowline (usually ~/.local/share/bowline) and
/// listens on a Unix socket in there and on 127.0.0.1:4747. The first start writes the root capability,
/// the key to everything, into root.ref in the data directory; only its owner can read that file.
///
/// Settings come from flags, then from the environment, then from the settings file: --tcp, BOWLINE_TCP,
/// and `tcp = "…"` in the file.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline serve
  bowline serve --data ./data --tcp 127.0.0.1:0 --unix off
  bowline serve --limit connections_max=100 --limit idle_ms_max=600000
  BOWLINE_LOG=debug bowline serve --log-format json

The server stops on SIGTERM and SIGINT (Ctrl-C): it finishes the calls it accepted, then ends.
A second signal ends it at once; nothing acknowledged is lost either way.")]
pub(super) struct Serve {
    /// Directory for the database, the root capability and the lock
    #[arg(long, value_name = "DIR", env = "BOWLINE_DATA")]
    data: Option<PathBuf>,

    /// Unix socket to listen on, or `off` [default: bowline.sock in the data directory]
    #[arg(long, value_name = "PATH", env = "BOWLINE_UNIX")]
    unix: Option<Switch<PathBuf>>,

    /// Loopback address to listen on, or `off`; port 0 takes a free one [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS", env = "BOWLINE_TCP")]
    tcp: Option<Switch<SocketAddr>>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "NUMBER", env = "BOWLINE_WORKERS")]
    workers: Option<usize>,

    /// Directory beneath which worktrees may lie, so that their files can be taken down and put back; may be given
    /// several times [default: your home directory]
    #[arg(
        long = "worktree-root",
        value_name = "DIR",
        env = "BOWLINE_WORKTREE_ROOTS",
        value_delimiter = ':'
    )]
    worktree_roots: Vec<PathBuf>,

    /// Whether worktrees in use are watched, so that only what changes is looked at [default: true]
    #[arg(long, value_name = "BOOL", env = "BOWLINE_WATCH_WORKTREES")]
    watch_worktrees: Option<bool>,

    /// Change a limit; may be given several times. docs/operating.md lists them
    #[arg(
        long = "limit",
        value_name = "NAME=VALUE",
        env = "BOWLINE_LIMITS",
        value_delimiter = ','
    )]
    limits: Vec<LimitOverride>,

    /// Settings file [default: $XDG_CONFIG_HOME/bowline/config.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "BOWLINE_CONFIG")]
    config: Option<PathBuf>,

    /// What to log: error, warn, info, debug, trace, or a filter like `bowline::engine=debug`
    /// [default: info]
    #[arg(long, value_name = "FILTER", env = "BOWLINE_LOG")]
    log: Option<String>,

    /// How log lines look: human or json [default: human]
    #[arg(long, value_name = "FORMAT", env = "BOWLINE_LOG_FORMAT")]
    log_format: Option<LogFormat>,

    /// Say where the server listens as one line of JSON
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(super) fn run(self) -> ExitCode {
        let json = self.json;
        let settings = match Settings::load(self.overrides(), process_env) {
            Ok(settings) => settings,
            Err(error) => return complain(exit::USAGE, error),
        };
        if let Err(why) = logging::start(&settings.log, settings.log_format) {
            return complain(exit::USAGE, why);
        }
        match serve(settings, json) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.is_held() => complain(exit::HELD, error),
            Err(error) => complain(exit::FAILED, error),
        }
    }

    fn overrides(self) -> Overrides {
        let Self {
            config,
            data,
            unix,
            tcp,
            workers,
            worktree_roots,
            watch_worktrees,
            limits,
            log,
            log_format,
            json: _,
        } = self;
        Overrides {
            config,
            data,
            unix,
            tcp,
            workers,
            worktree_roots,
            watch_worktrees,
            limits,
            log,
            log_format,
        }
    }
}

fn serve(settings: Settings, json: bool) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (stop, on_stop) = mpsc::channel(2);
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let mut signals = signal(kind)?;
            let stop = stop.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let _ = stop.try_send(());
                }
            });
        }
        let ready = |ready: &Ready| announce(ready, json);
        server::run(settings, Arc::new(SystemClock), ready, on_stop).await
    });
    // A commit that hangs must not keep the process; it has been reported.
    runtime.shutdown_background();
    ended
}

/// Tells where the server is. A reader that went away is no reason to stop.
fn announce(ready: &Ready, json: bool) {
    let mut out = io::stdout().lock();
    let _ = if json {
        let line = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "listening": ready.listening,
            "data": ready.data,
            "rootRefFile": ready.root_ref_file,
            "rootRef": match ready.root_ref {
                RootRef::Kept => "kept",
                RootRef::Made => "made",
                RootRef::Replaced => "replaced",
            },
        });
        writeln!(out, "{line}")
    } else {
        write_for_people(&mut out, ready)
    };
    let _ = out.flush();
}

fn write_for_people(out: &mut impl Write, ready: &Ready) -> io::Result<()> {
    writeln!(out, "bowline {} is ready", env!("CARGO_PKG_VERSION"))?;
    for address in &ready.listening {
        writeln!(out, "  listening on     {address}")?;
    }
    writeln!(out, "  data             {}", ready.data.display())?;
    writeln!(
        out,
        "  root capability  {} (only its owner can read it)",
        ready.root_ref_file.display()
    )?;
    match ready.root_ref {
        RootRef::Kept => Ok(()),
        RootRef::Made => writeln!(out, "  this is a new server: whoever has that file owns it"),
        RootRef::Replaced => {
            writeln!(
                out,
                "  the file was gone or no longer fitted: it is new, and the former root ref is dead"
            )
        }
    }
}
