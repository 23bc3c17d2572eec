//! What an operator meets: settings, the lock, the root's file, limits on connections, an orderly end.

use crate::support::*;
use bowline::wire::bowline_capnp::vat;
use bowline::wire::root_capnp::root;
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

type Args<'a> = &'a [&'a str];
type Env<'a> = &'a [(&'a str, &'a str)];

/// Runs the binary to its end.
fn run(home: &Path, args: Args<'_>, env: Env<'_>) -> Output {
    command(home).args(args).envs(env.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What some refs are made from; to be looked for in places where it must not be.
const SEED: [u8; 32] = [0xa7; 32];

#[test]
fn mistakes_are_explained_and_have_an_exit_code() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a-file"), "").unwrap();
    fs::write(path("bad.toml"), "tpc = 'off'\n").unwrap();
    fs::write(path("worse.toml"), "tcp = \n").unwrap();
    fs::create_dir(path("foreign")).unwrap();
    rusqlite::Connection::open(home.path().join("foreign/bowline.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();

    let table: &[(Args<'_>, Env<'_>, i32, &str)] = &[
        (
            &["serve", "--tcp", "0.0.0.0:4747"],
            &[],
            2,
            "setting tcp: 0.0.0.0:4747 is not a loopback",
        ),
        (&["serve", "--tcp", "nonsense"], &[], 2, "--tcp"),
        (&["serve"], &[("BOWLINE_TCP", "nonsense")], 2, "--tcp"),
        (&["serve", "--limit", "objects_max=0"], &[], 2, "limits.objects_max is 0"),
        (&["serve", "--limit", "object_max=1"], &[], 2, "unknown field `object_max`"),
        (&["serve"], &[("BOWLINE_LIMITS", "objects_max")], 2, "name=value"),
        (&["serve", "--config", "/nowhere.toml"], &[], 2, "/nowhere.toml cannot be read"),
        (&["serve", "--config", &path("bad.toml")], &[], 2, "unknown field `tpc`"),
        (&["serve", "--config", &path("worse.toml")], &[], 2, "worse.toml cannot be understood"),
        (&["serve", "--log", "bowline=loud"], &[], 2, "setting log"),
        (&["serve", "--data", &path("a-file/below")], &[], 1, "a-file/below cannot be used"),
        (&["serve", "--data", &path("foreign")], &[], 1, "not one of bowline's"),
        (&["serve", "--data", &path("d"), "--tcp", &taken], &[], 1, "choose another with --tcp"),
        (
            &["serve", "--data", &path("d"), "--unix", &path("a-file")],
            &[],
            1,
            "cannot listen on unix",
        ),
        (&["sreve"], &[], 2, "serve"),
    ];
    for (args, env, exit, says) in table {
        let output = run(home.path(), args, env);
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(*exit), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}: talk belongs on stderr");
    }
    assert_eq!(fs::read(path("a-file")).unwrap(), b"", "a file that is no socket is left alone");
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    drop(Server::start_in(home.path(), &[], &[]));
    let database = home.path().join("bowline.db");
    let conn = rusqlite::Connection::open(&database).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA user_version = 999;").unwrap();
    drop(conn);
    let data = home.path().to_str().unwrap();
    let output = run(home.path(), &["serve", "--tcp", "127.0.0.1:0", "--data", data], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("schema version 999"), "{}", stderr(&output));
}

#[test]
fn a_second_server_is_told_who_holds_the_directory() {
    let mut server = Server::start();
    let data = server.data.to_str().unwrap();
    let output = run(&server.data, &["serve", "--tcp", "127.0.0.1:0", "--data", data], &[]);
    assert_eq!(output.status.code(), Some(3));
    let says = stderr(&output);
    assert!(says.contains(&format!("process {}", server.pid())), "{says}");
    assert!(says.contains(&server.tcp.to_string()), "{says}");
    assert!(server.is_running());
    assert!(server.unix.exists(), "the first one's socket was left alone");
}

async fn objects_max(server: &Server) -> u32 {
    let answer = connect(server).await.hello_request().send().promise.await.unwrap();
    let info = answer.get().unwrap().get_server().unwrap();
    info.get_limits().unwrap().get_objects_max()
}

#[test]
fn flags_win_over_environment_and_environment_over_the_file() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".config/bowline")).unwrap();
    let file = home.path().join(".config/bowline/config.toml");
    fs::write(file, "[limits]\nobjects_max = 5\n").unwrap();
    let table: [(Args<'_>, Env<'_>, u32); 3] = [
        (&[], &[], 5),
        (&[], &[("BOWLINE_LIMITS", "objects_max=6,connections_max=10")], 6),
        (&["--limit", "objects_max=7"], &[("BOWLINE_LIMITS", "objects_max=6")], 7),
    ];
    for (flags, env, want) in table {
        let server = Server::start_in(home.path(), flags, env);
        assert_eq!(local(objects_max(&server)), want);
    }
}

#[test]
fn the_root_capability_is_the_owners_and_never_in_the_log() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut child = command(home.path())
        .args(["serve", "--tcp", "127.0.0.1:0", "--log", "trace", "--data"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stdout = child.stdout.take().unwrap();
    while !said.contains("root capability") {
        let mut bytes = [0; 4096];
        let read = stdout.read(&mut bytes).unwrap();
        assert!(read > 0, "it said {said:?}");
        said += std::str::from_utf8(&bytes[..read]).unwrap();
    }
    let root_ref = fs::read_to_string(data.join("root.ref")).unwrap();
    let mode = |name: &str| fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("root.ref"), mode("bowline.sock"), mode("")), (0o600, 0o600, 0o700));
    assert!(said.contains("listening on     tcp:127.0.0.1:"), "{said}");
    assert!(said.contains(data.to_str().unwrap()), "{said}");

    // Use it, and misuse it: neither may put the secret into the log.
    let address = said.split("tcp:").nth(1).unwrap().split_whitespace().next().unwrap();
    let refs = local(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (reader, writer) = stream.into_split();
        let vat = client(reader, writer);
        let root: root::Client = redeem(&vat, &root_ref);
        root.projects_request().send().promise.await.unwrap();
        let mut request = vat.redeem_request();
        request.get().set_ref(&root_ref.trim()[..root_ref.len() - 3]);
        failure(request.send().promise).await;
        // Every way to make a ref, each with a seed of its own.
        let (_, session) = crate::grants::made(&root);
        let mut producer = Producer::new();
        let all = crate::grants::all;
        let (saved, _) = crate::grants::save(&session, &mut producer, all).await.unwrap();
        let claim = |mut narrowing: bowline::wire::grant_capnp::narrowing::Builder<'_>| {
            narrowing.set_claim(true);
        };
        let (claim, _) = crate::grants::save(&session, &mut producer, claim).await.unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        request.get().set_seed(&SEED);
        let answer = request.send().promise.await.unwrap();
        let exchanged = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        let delegated = crate::delegation::delegate(&session, &mut producer, |_| ()).await.unwrap();
        let (_, shared, _) = crate::shares::publish(&session, &mut producer, |_| ()).await.unwrap();
        let mut request = root.rotate_request();
        Producer::new().header(request.get().init_op());
        request.get().set_seed(&SEED);
        let answer = request.send().promise.await.unwrap();
        let rotated = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        for sturdy_ref in [&saved, &claim, &rotated] {
            let mut request = vat.redeem_request();
            request.get().set_ref(sturdy_ref.as_str());
            let _ = request.send().promise.await;
        }
        [root_ref.clone(), saved, claim, exchanged, delegated.sturdy_ref, shared, rotated]
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let log = stderr(&output) + &said;
    assert!(log.len() > 100, "there is a log to look at");
    for sturdy_ref in refs {
        let secret = sturdy_ref.trim().split("bwl1_").nth(1).unwrap();
        assert!(!log.contains(&secret[..8]), "a secret is in the log");
    }
    let seed = data_encoding::HEXLOWER.encode(&SEED);
    assert!(!log.contains(&seed[..16]) && !log.contains(&format!("{:?}", &SEED[..4])[1..10]));
    assert!(!data.join("bowline.sock").exists(), "an orderly end takes the socket away");
}

#[test]
fn logs_are_json_on_request() {
    let home = tempfile::tempdir().unwrap();
    let args = [
        "serve",
        "--log-format",
        "json",
        "--log",
        "trace",
        "--tcp",
        "127.0.0.1:0",
        "--json",
        "--data",
    ];
    let mut child = command(home.path())
        .args(args)
        .arg(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> =
        stderr(&output).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(
        lines.iter().any(|line| line["fields"]["message"].as_str().unwrap().contains("stopping"))
    );
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = Server::start_with(&["--limit", "connections_max=2"]);
    local(async {
        let one = tokio::net::TcpStream::connect(server.tcp).await.unwrap();
        let two = connect_unix(&server).await;
        two.hello_request().send().promise.await.unwrap();
        let error = failure(connect(&server).await.hello_request().send().promise).await;
        assert_eq!(code(&error), "too-many-connections");
        assert_eq!(error.kind, capnp::ErrorKind::Overloaded);

        drop(one);
        // The place is free once the server has noticed.
        let deadline = Instant::now() + PATIENCE;
        while connect(&server).await.hello_request().send().promise.await.is_err() {
            assert!(Instant::now() < deadline);
            tokio::task::yield_now().await;
        }
        two.hello_request().send().promise.await.unwrap();

        // Full again, and yet the owner gets in over the Unix socket.
        let error = failure(connect(&server).await.hello_request().send().promise).await;
        assert_eq!(code(&error), "too-many-connections");
        connect_unix(&server).await.hello_request().send().promise.await.unwrap();
    });
}

#[test]
fn strangers_are_not_waited_for_but_holders_are() {
    let server = Server::start_with(&["--limit", "stranger_idle_ms_max=300"]);
    local(async {
        let holder: root::Client = root(&server).await;
        holder.projects_request().send().promise.await.unwrap();
        let begun = Instant::now();
        let mut stranger = tokio::net::TcpStream::connect(server.tcp).await.unwrap();
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stranger, &mut rest).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(250), "not at once");
        holder.projects_request().send().promise.await.expect("the holder's connection is alive");
    });
}

#[test]
fn a_holder_that_says_nothing_for_long_is_let_go_and_told_why() {
    let server = Server::start_with(&["--limit", "idle_ms_max=1000"]);
    local(async {
        let holder: root::Client = root(&server).await;
        holder.projects_request().send().promise.await.unwrap();
        // A call whose answer does not come keeps nobody from being let go for silence.
        let lock = rusqlite::Connection::open(server.data.join("bowline.db")).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = failure(open_project(&holder, &mut Producer::new(), "/w").promise).await;
        assert_eq!(code(&error), "connection-ended", "{error}");
        assert_eq!(error.kind, capnp::ErrorKind::Disconnected);
    });
}

#[test]
fn an_existing_directory_does_not_make_the_database_public() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_in(home.path(), &[], &[]);
    local(async {
        fresh_session(&root(&server).await).info_request().send().promise.await.unwrap();
    });
    for name in ["bowline.db", "bowline.db-wal", "bowline.db-shm", "root.ref", "lock"] {
        let mode = fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
}

#[test]
fn an_orderly_end_finishes_what_was_accepted() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(home.path(), &[], &[]);
    let lock = rusqlite::Connection::open(home.path().join("bowline.db")).unwrap();
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        session.info_request().send().promise.await.unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut producer = Producer::new();
        let accepted = producer.batch(&session, &["accepted"]).send().promise;
        // Sent behind the append on the same connection, so when it is answered that one was accepted.
        root.projects_request().send().promise.await.unwrap();

        server.signal(Signal::TERM);
        // New calls are refused from some moment on, with the advice to come back.
        let late = loop {
            match root.projects_request().send().promise.await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert_eq!(code(&late), "shutting-down");
        assert_eq!(late.kind, capnp::ErrorKind::Disconnected);

        lock.execute_batch("ROLLBACK").unwrap();
        let answer = accepted.await.expect("what was accepted is finished");
        assert_eq!(answer.get().unwrap().get_ack().unwrap().get_cursor(), 1);
    });
    assert_eq!(server.ended().code(), Some(0));
    let rest = fs::metadata(home.path().join("bowline.db-wal")).map_or(0, |wal| wal.len());
    assert_eq!(rest, 0, "the write-ahead log was folded into the database");
}

#[test]
fn a_peer_that_does_not_read_cannot_keep_the_server() {
    let mut server = Server::start_with(&["--limit", "shutdown_ms_max=500"]);
    let mut stream = std::net::TcpStream::connect(server.tcp).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Questions whose answers nobody reads, until the server stops listening.
    for first in (0u32..).step_by(1000) {
        let mut bytes = Vec::new();
        for question in first..first + 1000 {
            let mut message = capnp::message::Builder::new_default();
            let root = message.init_root::<capnp_rpc::rpc_capnp::message::Builder<'_>>();
            root.init_bootstrap().set_question_id(question);
            bytes.extend(capnp::serialize::write_message_to_words(&message));
        }
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let begun = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for the peer's stall limit");
}

#[test]
fn a_commit_that_never_returns_is_reported_and_left() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(home.path(), &["--limit", "shutdown_ms_max=300"], &[]);
    let lock = rusqlite::Connection::open(home.path().join("bowline.db")).unwrap();
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        session.info_request().send().promise.await.unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let doomed = Producer::new().batch(&session, &["doomed"]).send().promise;
        root.projects_request().send().promise.await.unwrap();
        server.signal(Signal::TERM);
        let error = failure(doomed).await;
        assert_eq!(error.kind, capnp::ErrorKind::Disconnected, "{error}");
    });
    assert_eq!(
        server.ended().code(),
        Some(1),
        "not everything was finished, and the exit code says so"
    );
}

#[test]
fn a_damaged_database_is_reported_and_the_server_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(home.path(), &[], &[]);
    let large = "x".repeat(100_000);
    local(async {
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let session = create_session(&project, &mut Producer::new(), "s").pipeline.get_session();
        Producer::new().batch(&session, &vec![large.as_str(); 20]).send().promise.await.unwrap();
    });
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    // The payloads are at the end of the file; what leads to them is at its beginning.
    let database = home.path().join("bowline.db");
    let mut bytes = fs::read(&database).unwrap();
    let from = (bytes.len() - 1_500_000).next_multiple_of(4096);
    for page in bytes[from..].chunks_mut(4096) {
        page[..4].fill(0xff);
    }
    fs::write(&database, bytes).unwrap();

    let server = Server::start_in(home.path(), &[], &[]);
    local(async {
        let vat: vat::Client = connect(&server).await;
        let root: root::Client = redeem(&vat, &server.root_ref());
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let mut request = project.session_request();
        request.get().set_id("s");
        let session = request.send().pipeline.get_session();
        let mut request = session.messages_request();
        request.get().init_page().set_newest_first(true);
        let error = failure(request.send().promise).await;
        assert_eq!(code(&error), "storage-failed");
        vat.hello_request().send().promise.await.unwrap();
    });
}

#[test]
fn help_is_what_it_was() {
    let home = tempfile::tempdir().unwrap();
    let mut found = String::new();
    let commands = ["serve", "verify", "rebuild", "compact", "audit"];
    let helps = commands.map(|command| vec![command, "--help"]);
    for args in [vec!["--help"]].into_iter().chain(helps) {
        let args = &args[..];
        let output = run(home.path(), args, &[]);
        assert_eq!(output.status.code(), Some(0));
        found += &format!(
            "$ bowline {}\n{}\n",
            args.join(" "),
            String::from_utf8(output.stdout).unwrap()
        );
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help.txt");
    if std::env::var_os("GOLDEN").is_some() {
        fs::write(golden, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(golden).unwrap(), "run with GOLDEN=1 if this is meant");
}

/// A database of every past schema version, made by the program of that time. `GOLDEN=1` adds the
/// current one.
#[test]
fn databases_of_every_version_still_open() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/databases");
    let versions = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/migrations"));
    let versions = versions.unwrap().count();
    let newest = golden.join(format!("v{versions:04}.db"));
    if std::env::var_os("GOLDEN").is_some() && !newest.exists() {
        let home = tempfile::tempdir().unwrap();
        let mut server = Server::start_in(home.path(), &[], &[]);
        local(async {
            let root = root(&server).await;
            let project =
                open_project(&root, &mut Producer::new(), "/golden").pipeline.get_project();
            let session =
                create_session(&project, &mut Producer::new(), "golden").pipeline.get_session();
            Producer::new().batch(&session, &["one", "two"]).send().promise.await.unwrap();
            let mut producer = Producer::new();
            let claim = |mut narrowing: bowline::wire::grant_capnp::narrowing::Builder<'_>| {
                narrowing.set_claim(true);
                narrowing.set_sealed_to("ada");
                narrowing.init_tools(1).set(0, "grep");
            };
            crate::grants::save(&session, &mut producer, claim).await.unwrap();
            crate::delegation::delegate(&session, &mut producer, |_| ()).await.unwrap();
            crate::shares::publish(&session, &mut producer, |_| ()).await.unwrap();
        });
        server.signal(Signal::TERM);
        assert_eq!(server.ended().code(), Some(0));
        fs::create_dir_all(&golden).unwrap();
        fs::copy(home.path().join("bowline.db"), &newest).unwrap();
    }
    for version in 1..=versions {
        let home = tempfile::tempdir().unwrap();
        let old = golden.join(format!("v{version:04}.db"));
        fs::copy(&old, home.path().join("bowline.db")).unwrap();
        let server = Server::start_in(home.path(), &[], &[]);
        local(async {
            let root = root(&server).await;
            let project =
                open_project(&root, &mut Producer::new(), "/golden").pipeline.get_project();
            let mut request = project.session_request();
            request.get().set_id("golden");
            let session = request.send().pipeline.get_session();
            assert_eq!(texts(&session, 0).await, ["one", "two"], "version {version}");
            Producer::new().batch(&session, &["three"]).send().promise.await.unwrap();
        });
        drop(server);
        let verify =
            command(home.path()).args(["verify", "--data"]).arg(home.path()).output().unwrap();
        let report = String::from_utf8_lossy(&verify.stdout).into_owned();
        assert!(verify.status.success(), "version {version}: {report}");
    }
}
