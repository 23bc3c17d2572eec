//! `bowline import`

use super::into_session::{Done, IntoSession, Numbers};
use super::{Door, Trouble, bar, code, opencode, with_member};
use crate::cli::upkeep::{Directory, count};
use crate::cli::{complain, exit};
use crate::exchange::document::{Format, WireTaker, read, read_binary};
use crate::exchange::json::{Reverted, message_from_json, session_from_json, todo_from_json};
use crate::exchange::{Kept, Stop, Taker, Untaken};
use crate::wire::message_capnp::{message_body, revert, session_change, todo};
use crate::wire::root_capnp::{project, root};
use crate::wire::session_capnp::session_draft;
use capnp::message::{Builder, HeapAllocator};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Read a session from a file, or all sessions OpenCode has kept
///
/// Takes what `bowline export` and `opencode export` write, or a data directory or database of OpenCode's
/// (SQLite of 1.2 and later, and the JSON files from before). What is there already and says the same is left
/// alone: an import that was interrupted goes on where it was, and one that is run again changes nothing. What
/// cannot be taken is counted and told, and stops nothing. Works beside a running server, and without one.
#[derive(Debug, Args)]
#[command(
    override_usage = "bowline import [OPTIONS] FILE\n       bowline import [OPTIONS] opencode DIR|DATABASE",
    after_long_help = "\
Examples:
  bowline import session.json
  bowline import opencode ~/.local/share/opencode
  bowline import opencode ./opencode.db --json

Ends with 4 if something could not be taken."
)]
pub(in crate::cli) struct Import {
    /// A document; or `opencode`, and where its data are
    #[arg(value_name = "FILE", num_args = 1..=2, required = true)]
    what: Vec<PathBuf>,

    #[command(flatten)]
    directory: Directory,
}

impl Import {
    pub(in crate::cli) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(Vec::new()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let run = match self.what.as_slice() {
            [kind, path] if kind.as_os_str() == "opencode" => {
                Door::open(settings).and_then(|door| opencode::import(door, path))
            }
            [kind] if kind.as_os_str() == "opencode" && !kind.exists() => {
                return complain(
                    exit::USAGE,
                    "where are OpenCode's data? bowline import opencode DIR",
                );
            }
            [path] => Door::open(settings).and_then(|door| document(door, path)),
            _ => return complain(exit::USAGE, "two paths: the first can only be `opencode`"),
        };
        match run {
            Ok(done) => {
                report(&done, self.directory.json);
                match done.untaken.is_empty() {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::from(exit::PROBLEMS),
                }
            }
            Err(trouble) => trouble.exit(),
        }
    }
}

fn report(done: &Done, json: bool) {
    let mut out = io::stdout().lock();
    // A reader that went away does not change what was done.
    let _ = match json {
        true => writeln!(
            out,
            "{}",
            serde_json::json!({
                "sessionsCreated": done.sessions_created,
                "sessionsFound": done.sessions_found,
                "messagesAdded": done.messages_added,
                "messagesChanged": done.messages_changed,
                "messagesSame": done.messages_same,
                "untaken": done.untaken,
                "untakenShown": done.shown,
            })
        ),
        false => for_people(&mut out, done),
    };
}

fn for_people(out: &mut impl Write, done: &Done) -> io::Result<()> {
    writeln!(
        out,
        "{} sessions made, {} were there; {} messages added, {} changed, {} as they were",
        count(done.sessions_created),
        count(done.sessions_found),
        count(done.messages_added),
        count(done.messages_changed),
        count(done.messages_same),
    )?;
    for (reason, times) in &done.untaken {
        writeln!(out, "not taken: {} times {reason}", count(*times))?;
    }
    for line in &done.shown {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// Projects that were opened, and the numbers their ops have.
pub(super) struct Projects<'a> {
    door: &'a Door,
    root_numbers: Option<Numbers>,
    open: HashMap<(String, String), (project::Client, Numbers)>,
}

impl<'a> Projects<'a> {
    pub(super) fn new(door: &'a Door) -> Self {
        Self { door, root_numbers: None, open: HashMap::new() }
    }

    /// The project of this id, or else of this directory, made if there is none.
    pub(super) fn open(
        &mut self,
        id: &str,
        home: &Home,
    ) -> Result<&mut (project::Client, Numbers), Trouble> {
        let key = (id.to_owned(), home.directory.clone());
        if !self.open.contains_key(&key) {
            let project = self.find(id, home)?;
            let mut request = project.register_request();
            let producer = Numbers::register("project", request.get().init_registration());
            let answer = self.door.wait(request.send().promise)?;
            let registered = answer.get()?.get_registered()?;
            let (epoch, next) = (registered.get_epoch(), registered.get_next_expected_seq());
            let numbers = Numbers::registered(producer, epoch, next);
            self.open.insert(key.clone(), (project, numbers));
        }
        self.open.get_mut(&key).ok_or_else(|| Trouble::Other("a project was lost".into()))
    }

    fn find(&mut self, id: &str, home: &Home) -> Result<project::Client, Trouble> {
        let root = self.door.root();
        if !id.is_empty() {
            let mut request = root.project_request();
            request.get().set_id(id);
            match self.door.wait(async { Ok::<_, Trouble>(request.send().promise.await) })? {
                Ok(answer) => return Ok(answer.get()?.get_project()?),
                Err(error) if ["project-not-found", "id-malformed"].contains(&code(&error)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A directory that is another project's already decides.
        for id in [id, ""] {
            let mut numbers = match self.root_numbers.take() {
                Some(numbers) => numbers,
                None => root_numbers(self.door, root)?,
            };
            let mut request = root.open_project_request();
            numbers.header(request.get().init_op());
            self.root_numbers = Some(numbers);
            let mut draft = request.get().init_project();
            draft.set_directory(home.directory.as_str());
            draft.set_id(id);
            draft.set_name(home.name.as_str());
            draft.set_rest(home.rest.as_str());
            match self.door.wait(async { Ok::<_, Trouble>(request.send().promise.await) })? {
                Ok(answer) => return Ok(answer.get()?.get_project()?),
                Err(error) if ["project-exists", "id-malformed"].contains(&code(&error)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Trouble::Other(format!("no project can be opened for {}", home.directory)))
    }
}

fn root_numbers(door: &Door, root: &root::Client) -> Result<Numbers, Trouble> {
    let mut request = root.register_request();
    let producer = Numbers::register("root", request.get().init_registration());
    let answer = door.wait(request.send().promise)?;
    let registered = answer.get()?.get_registered()?;
    Ok(Numbers::registered(producer, registered.get_epoch(), registered.get_next_expected_seq()))
}

/// One document.
fn document(door: Door, path: &Path) -> Result<Done, Trouble> {
    let named = |error: io::Error| Trouble::Other(format!("{}: {error}", path.display()));
    let mut input = BufReader::new(File::open(path).map_err(named)?);
    let mut start = [0; 16];
    let length = read_up_to(&mut input, &mut start).map_err(named)?;
    let form = Format::of(&start[..length]).ok_or_else(|| {
        Trouble::Other(format!("{} is neither a JSON document nor a binary one", path.display()))
    })?;
    let input = start[..length].chain(input);
    let mut taking = Taking::new(&door, HashMap::new());
    let read = match form {
        Format::Json => read(input, &mut taking),
        Format::Binary => read_binary(input, &mut taking),
    };
    read.map_err(|error| Trouble::Other(format!("{}: {error}", path.display())))?;
    let done = taking.finish()?;
    door.close()?;
    Ok(done)
}

fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..])? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// A session on its way from a document to the server.
pub(super) struct Taking<'a> {
    door: &'a Door,
    projects: Projects<'a>,
    /// Where sessions of a project belong, by the project's id; what a session says of itself otherwise.
    known: HashMap<String, Home>,
    into: Option<IntoSession<'a>>,
    revert: Option<Reverted>,
    contents: Vec<(Kept, Vec<u8>)>,
    todos: Vec<Builder<HeapAllocator>>,
    /// What the next session did to files, as a JSON array.
    diffs: Option<String>,
    pub(super) done: Done,
    pub(super) bar: indicatif::ProgressBar,
}

/// Where sessions belong: what there is to know about a project.
#[derive(Debug, Clone, Default)]
pub(super) struct Home {
    pub(super) directory: String,
    pub(super) name: String,
    /// A JSON object; may be empty.
    pub(super) rest: String,
}

/// What of a session is needed to find its project.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Origin {
    #[serde(rename = "projectID")]
    project_id: String,
    directory: String,
}

impl<'a> Taking<'a> {
    pub(super) fn new(door: &'a Door, known: HashMap<String, Home>) -> Self {
        Self {
            door,
            projects: Projects::new(door),
            known,
            into: None,
            revert: None,
            contents: Vec::new(),
            todos: Vec::new(),
            diffs: None,
            done: Done::default(),
            bar: bar(0, "messages"),
        }
    }

    /// Ends the session that was taken last.
    pub(super) fn end_session(&mut self) -> Result<(), Trouble> {
        self.diffs = None;
        let Some(mut into) = self.into.take() else { return Ok(()) };
        // First this: where a conversation ends, its list of things to do does, too.
        if let Some(revert) = self.revert.take() {
            into.revert(&revert)?;
        }
        let todos = std::mem::take(&mut self.todos);
        let read = todos.iter().map(|todo| todo.get_root_as_reader::<todo::Reader<'_>>());
        into.todos(&read.collect::<Result<Vec<_>, _>>()?)?;
        into.end(&mut self.done)
    }

    pub(super) fn finish(mut self) -> Result<Done, Trouble> {
        self.end_session()?;
        self.bar.finish_and_clear();
        Ok(self.done)
    }

    fn begin(&mut self, draft: session_draft::Reader<'_>, origin: &Origin) -> Result<(), Trouble> {
        self.end_session()?;
        let said = || Home { directory: origin.directory.clone(), ..Home::default() };
        let mut home = self.known.get(&origin.project_id).cloned().unwrap_or_else(said);
        if !home.directory.starts_with('/') {
            home.directory = "/".to_owned();
        }
        let project = self.projects.open(&origin.project_id, &home)?;
        let (client, numbers) = (project.0.clone(), &mut project.1);
        self.into = Some(IntoSession::open(self.door, &client, numbers, draft, &mut self.done)?);
        Ok(())
    }

    /// Whether a session can have the parent it names, or has it already.
    fn has_parent(&self, draft: session_draft::Reader<'_>) -> Result<bool, Trouble> {
        let parent = draft.get_parent_id()?;
        if parent.is_empty() {
            return Ok(true);
        }
        let look = |id: capnp::text::Reader<'_>| {
            let mut request = self.door.root().session_request();
            request.get().set_id(id);
            let info = request.send().pipeline.get_session().info_request().send().promise;
            self.door.wait(async { Ok::<_, Trouble>(info.await) })
        };
        // One that was made without it has none ever after.
        Ok(match look(draft.get_id()?)? {
            Ok(info) => info.get()?.get_session()?.get_parent_id()? == parent,
            Err(_) => look(parent)?.is_ok(),
        })
    }

    fn put(&mut self, body: message_body::Reader<'_>) -> Result<(), Trouble> {
        let contents = std::mem::take(&mut self.contents);
        let into = self
            .into
            .as_mut()
            .ok_or_else(|| Trouble::Other("a message before its session".into()))?;
        into.message(body, &contents, &mut self.done)?;
        self.bar.inc(1);
        Ok(())
    }
}

impl Taker for Taking<'_> {
    fn diffs(&mut self, diffs: &[Box<RawValue>]) -> Result<(), Stop> {
        self.diffs = Some(serde_json::to_string(diffs)?);
        Ok(())
    }

    fn session(&mut self, session: &RawValue) -> Result<(), Stop> {
        // They are kept among the other fields, as far as there is room.
        let with_diffs = self
            .diffs
            .take()
            .map(|diffs| RawValue::from_string(with_member(session.get(), "session_diff", &diffs)));
        let with_diffs = with_diffs.transpose()?;
        let session = with_diffs.as_deref().unwrap_or(session);
        let origin: Origin = serde_json::from_str(session.get()).unwrap_or_default();
        let mut draft = Builder::new_default();
        let taken = session_from_json(session, true, draft.init_root());
        let taken = match taken {
            Ok(taken) => taken,
            Err(untaken) => {
                self.done.untaken(&untaken);
                return Err(untaken.to_string().into());
            }
        };
        taken.untaken.iter().for_each(|untaken| self.done.untaken(untaken));
        // A parent that is nowhere stays a name among the other fields.
        if !self.has_parent(draft.get_root_as_reader()?)? {
            draft = Builder::new_default();
            session_from_json(session, false, draft.init_root()).map_err(|it| it.to_string())?;
        }
        self.begin(draft.get_root_as_reader()?, &origin)?;
        self.revert = taken.reverted;
        Ok(())
    }

    fn message(&mut self, info: &RawValue, parts: &[Box<RawValue>]) -> Result<(), Stop> {
        let mut body = Builder::new_default();
        let mut contents = Vec::new();
        let mut keep = |bytes: &[u8]| {
            let kept = Kept::of(bytes);
            contents.push((kept, bytes.to_vec()));
            kept
        };
        let taken = message_from_json(info, parts, &mut keep, body.init_root());
        match taken {
            Err(untaken) => {
                self.done.untaken(&untaken);
                Ok(())
            }
            Ok(untaken) => {
                untaken.iter().for_each(|untaken| self.done.untaken(untaken));
                self.contents = contents;
                Ok(self.put(body.get_root_as_reader()?)?)
            }
        }
    }

    fn todos(&mut self, todos: &[Box<RawValue>]) -> Result<(), Stop> {
        for todo in todos {
            let mut to = Builder::new_default();
            match todo_from_json(todo, to.init_root()) {
                Ok(()) => self.todos.push(to),
                Err(untaken) => self.done.untaken(&untaken),
            }
        }
        Ok(())
    }

    fn untaken(&mut self, untaken: Untaken) -> Result<(), Stop> {
        self.done.untaken(&untaken);
        Ok(())
    }
}

/// A session whose parent is nowhere: that stays a name among the other fields.
fn without_parent(draft: session_draft::Reader<'_>) -> Result<Builder<HeapAllocator>, Stop> {
    let name = serde_json::to_string(draft.get_parent_id()?.to_str()?)?;
    let mut rest = "{}".to_owned();
    let mut kept = Vec::new();
    for change in draft.get_changes()? {
        match change.which()? {
            session_change::Rest(json) => rest = json?.to_string()?,
            _ => kept.push(change),
        }
    }
    let mut message = Builder::new_default();
    let mut to = message.init_root::<session_draft::Builder<'_>>();
    to.set_id(draft.get_id()?);
    to.set_title(draft.get_title()?);
    to.set_created_at_ms(draft.get_created_at_ms());
    let mut changes = to.init_changes(kept.len() as u32 + 1);
    for (at, change) in (0..).zip(&kept) {
        changes.set_with_caveats(at, *change)?;
    }
    let rest = with_member(&rest, "parentID", &name);
    changes.get(kept.len() as u32).set_rest(rest.as_str());
    Ok(message)
}

impl WireTaker for Taking<'_> {
    fn session(&mut self, draft: session_draft::Reader<'_>) -> Result<(), Stop> {
        let mut origin = Origin::default();
        for change in draft.get_changes()? {
            match change.which()? {
                session_change::Directory(directory) => {
                    origin.directory = directory?.to_string().unwrap_or_default();
                }
                session_change::Rest(rest) => {
                    let rest = rest?.to_str().unwrap_or_default();
                    let said: Origin = serde_json::from_str(rest).unwrap_or_default();
                    origin.project_id = said.project_id;
                }
                _ => {}
            }
        }
        if self.has_parent(draft)? {
            return Ok(self.begin(draft, &origin)?);
        }
        let orphan = without_parent(draft)?;
        Ok(self.begin(orphan.get_root_as_reader()?, &origin)?)
    }

    fn message(&mut self, body: message_body::Reader<'_>) -> Result<(), Stop> {
        // Turns stay where they were: on the way, a message belongs to none.
        let mut copy = Builder::new_default();
        copy.set_root(body)?;
        copy.get_root::<message_body::Builder<'_>>()?.set_turn_id("");
        Ok(self.put(copy.get_root_as_reader()?)?)
    }

    fn revert(&mut self, revert: revert::Reader<'_>) -> Result<(), Stop> {
        let part = revert.get_part_id()?.to_string()?;
        self.revert = Some(Reverted {
            message_id: revert.get_message_id()?.to_string()?,
            part_id: Some(part).filter(|part| !part.is_empty()),
        });
        Ok(())
    }

    fn todo(&mut self, todo: todo::Reader<'_>) -> Result<(), Stop> {
        let mut to = Builder::new_default();
        to.set_root(todo)?;
        self.todos.push(to);
        Ok(())
    }

    fn content(&mut self, hash: &[u8; 32], offset: u64, data: &[u8]) -> Result<(), Stop> {
        match self.contents.last_mut() {
            Some((kept, before)) if kept.hash == *hash && before.len() as u64 == offset => {
                before.extend_from_slice(data);
                kept.bytes = before.len() as u64;
            }
            _ => {
                self.contents.push((Kept { hash: *hash, bytes: data.len() as u64 }, data.to_vec()))
            }
        }
        Ok(())
    }
}
