//! `bowline export`

use super::{Door, Taken, Trouble, bar, whole};
use crate::cli::upkeep::Directory;
use crate::cli::{complain, exit};
use crate::exchange::document::{BinaryWriter, JsonWriter};
use crate::exchange::json::{
    Place, message_to_json, session_from_json, session_to_json, todo_to_json,
};
use crate::model::content::content_ref;
use crate::wire::message_capnp::{message_body, revert};
use crate::wire::session_capnp::{session, session_draft};
use capnp::message::Builder;
use clap::{Args, ValueEnum};
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a session to a file, with everything that belongs to it
///
/// Messages, parts, long content, todos and what is known about it; not its history, its turns with what each of
/// them did to files, its grants or its shares. `bowline import` reads it again, on this server or another. The JSON form is also that of
/// `opencode export`. Works beside a running server, and without one.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline export ses_1 > session.json
  bowline export ses_1 --format binary --output session.bowline")]
pub(in crate::cli) struct Export {
    /// The session's id
    #[arg(value_name = "SESSION")]
    session: String,

    /// What to write
    #[arg(long, value_enum, default_value = "json")]
    format: Form,

    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    directory: Directory,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// One JSON document
    Json,
    /// The same, compact and checksummed
    Binary,
}

impl Export {
    pub(in crate::cli) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(Vec::new()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let out: Box<dyn Write> = match &self.output {
            None if matches!(self.form(), Form::Binary) && io::stdout().is_terminal() => {
                return complain(
                    exit::USAGE,
                    "a binary document is not for a terminal; see --output",
                );
            }
            None => Box::new(io::stdout().lock()),
            Some(path) => match File::create_new(path) {
                Ok(file) => Box::new(file),
                Err(error) => {
                    return complain(exit::FAILED, format!("{}: {error}", path.display()));
                }
            },
        };
        match self.write(settings, BufWriter::new(out)) {
            Ok(messages) => {
                if self.directory.json && self.output.is_some() {
                    let report = serde_json::json!({ "messages": messages });
                    let _ = writeln!(io::stdout(), "{report}");
                }
                ExitCode::SUCCESS
            }
            Err(trouble) => {
                // Half a document is none.
                if let Some(path) = &self.output {
                    let _ = std::fs::remove_file(path);
                }
                trouble.exit()
            }
        }
    }

    fn form(&self) -> Form {
        self.format
    }

    fn write(&self, settings: crate::config::Settings, out: impl Write) -> Result<u64, Trouble> {
        let door = Door::open(settings)?;
        let mut request = door.root().session_request();
        request.get().set_id(self.session.as_str());
        let session = request.send().pipeline.get_session();
        let reader = SessionReader { door: &door, session };
        let written = match self.format {
            Form::Json => reader.json(out),
            Form::Binary => reader.binary(out),
        };
        let written = written?;
        door.close()?;
        Ok(written)
    }
}

/// Reads a session, a page at a time.
struct SessionReader<'a> {
    door: &'a Door,
    session: session::Client,
}

impl SessionReader<'_> {
    fn info(&self) -> Result<(String, String), Trouble> {
        let answer = self.door.wait(self.session.info_request().send().promise)?;
        let info = answer.get()?.get_session()?;
        let json = session_to_json(info).map_err(|error| Trouble::Other(error.to_string()))?;
        Ok((info.get_id()?.to_string().unwrap_or_default(), json))
    }

    fn json(&self, out: impl Write) -> Result<u64, Trouble> {
        let (id, info) = self.info()?;
        let mut writer = JsonWriter::new(out, &info)?;
        let count = self.each(|taken| {
            let place = Place {
                session_id: id.as_str(),
                message_id: taken.id.as_str(),
                created_at_ms: taken.created_at_ms,
            };
            let body = taken.body.get_root_as_reader::<message_body::Reader<'_>>()?;
            let mut fetch = |hash: &[u8], bytes: u64| self.content(hash, bytes);
            let json = message_to_json(place, body, body.get_parts()?, &mut fetch)
                .map_err(|error| Trouble::Other(error.to_string()))?;
            Ok(writer.message(&json)?)
        })?;
        let answer = self.door.wait(self.session.todos_request().send().promise)?;
        let mut todos = Vec::new();
        for todo in answer.get()?.get_todos()? {
            todos.push(todo_to_json(todo).map_err(|error| Trouble::Other(error.to_string()))?);
        }
        writer.finish(&todos)?.flush()?;
        Ok(count)
    }

    fn binary(&self, out: impl Write) -> Result<u64, Trouble> {
        let odd =
            |error: crate::exchange::document::DocumentError| Trouble::Other(error.to_string());
        let (_, info) = self.info()?;
        let raw = RawValue::from_string(info).map_err(|error| Trouble::Other(error.to_string()))?;
        let mut draft = Builder::new_default();
        let taken = session_from_json(&raw, true, draft.init_root::<session_draft::Builder<'_>>())
            .map_err(|untaken| Trouble::Other(untaken.to_string()))?;
        let mut writer = BinaryWriter::new(out, draft.get_root_as_reader()?).map_err(odd)?;
        let count = self.each(|taken| {
            let body = taken.body.get_root_as_reader::<message_body::Reader<'_>>()?;
            for part in body.get_parts()? {
                for content in [part.get_content()?, part.get_rest_content()?] {
                    let named = content_ref(content).map_err(|error| error.into_error())?;
                    let Some(named) = named else { continue };
                    let mut offset = 0;
                    while offset < named.bytes {
                        let piece = self.piece(&named.hash, offset)?;
                        writer.content(&named.hash, offset, &piece).map_err(odd)?;
                        offset += piece.len() as u64;
                    }
                }
            }
            writer.message(body).map_err(odd)
        })?;
        let answer = self.door.wait(self.session.todos_request().send().promise)?;
        for todo in answer.get()?.get_todos()? {
            writer.todo(todo).map_err(odd)?;
        }
        if let Some(reverted) = taken.reverted {
            let mut revert = Builder::new_default();
            let mut to = revert.init_root::<revert::Builder<'_>>();
            to.set_message_id(reverted.message_id.as_str());
            to.set_part_id(reverted.part_id.as_deref().unwrap_or_default());
            writer.revert(revert.get_root_as_reader()?).map_err(odd)?;
        }
        writer.finish().map_err(odd)?.flush()?;
        Ok(count)
    }

    /// Hands every message to `take`, also those that are reverted; how many there were.
    fn each(&self, mut take: impl FnMut(&Taken) -> Result<(), Trouble>) -> Result<u64, Trouble> {
        let (mut after, mut count) = (0, 0);
        let bar = bar(0, "messages");
        loop {
            let mut request = self.session.messages_request();
            request.get().set_reverted(true);
            request.get().init_page().set_after(after);
            let answer = self.door.wait(request.send().promise)?;
            let answer = answer.get()?;
            for message in answer.get_messages()? {
                let taken = whole(self.door, &self.session, message)?;
                take(&taken)?;
                count += 1;
            }
            bar.set_position(count);
            after = answer.get_end()?.get_next();
            if !answer.get_end()?.get_more() {
                bar.finish_and_clear();
                return Ok(count);
            }
        }
    }

    fn piece(&self, hash: &[u8], offset: u64) -> Result<Vec<u8>, Trouble> {
        let mut request = self.session.content_request();
        request.get().set_hash(hash);
        request.get().set_offset(offset);
        let answer = self.door.wait(request.send().promise)?;
        match answer.get()?.get_data()? {
            [] => Err(Trouble::Other("some content ends before it should".into())),
            piece => Ok(piece.to_vec()),
        }
    }

    fn content(&self, hash: &[u8], bytes: u64) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while (all.len() as u64) < bytes {
            let piece = self.piece(hash, all.len() as u64);
            all.extend(piece.map_err(|trouble| io::Error::other(trouble.to_string()))?);
        }
        Ok(all)
    }
}
