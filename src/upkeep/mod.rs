//! Looking after a data directory: is everything as it must be, making what follows from the history
//! anew, and letting history go that nobody needs.
//!
//! Nothing here decides what an op means, and nothing here writes but through the engine or, while no
//! server runs, in one transaction that is all or nothing.

pub mod audit;
pub mod compaction;
pub mod leases;
pub mod rebuild;
pub mod verify;

use crate::model::ids::GrantId;
use crate::ops::{Place, Said};
use crate::store::data_dir::{DataDir, DataDirError};
use crate::store::{self, Store, StoreError, Tx, logs, meta, ops};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory could not be looked after.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// There is nothing to look after.
    #[error("there is no database at {}; say with --data where the server keeps its data", .0.display())]
    NoDatabase(PathBuf),
    /// It is in use, or cannot be.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The database cannot be used.
    #[error("the database {} cannot be used: {error}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        error: StoreError,
    },
    /// The work stopped in the middle; what was done is done, and it can be begun again.
    #[error("the work stopped: {0}")]
    Stopped(String),
    /// The system gave no thread.
    #[error("the system refused something: {0}")]
    System(#[from] io::Error),
}

impl UpkeepError {
    /// Whether another process holds the data directory.
    pub fn is_held(&self) -> bool {
        matches!(self, UpkeepError::DataDir(DataDirError::Held { .. }))
    }
}

/// The database of a data directory; there must be one.
fn database(data: &Path) -> Result<PathBuf, UpkeepError> {
    let path = data.join(DataDir::DATABASE);
    if path.is_file() { Ok(path) } else { Err(UpkeepError::NoDatabase(path)) }
}

/// The database, to be written to by nobody else.
fn hold(data: &Path, now_ms: u64) -> Result<(DataDir, PathBuf, Store), UpkeepError> {
    let path = database(data)?;
    let held = DataDir::hold(data, std::process::id(), now_ms)?;
    match Store::open(&path).and_then(|store| begin_trail(store, now_ms)) {
        Ok(store) => Ok((held, path, store)),
        Err(error) => Err(UpkeepError::Store { path, error }),
    }
}

/// A store that was brought up to date just now has no audit trail yet; from here on it has one.
fn begin_trail(mut opened: Store, now_ms: u64) -> Result<Store, StoreError> {
    let tx = opened.begin()?;
    let begun = store::audit::head(&tx)?.number > 0;
    if let Some(known) = meta::get(&tx)?.filter(|_| !begun) {
        store::audit::begin(&tx, known.incarnation, now_ms)?;
    }
    tx.commit()?;
    Ok(opened)
}

/// What a replay came to.
struct Replayed {
    ops: u64,
    /// Ops that do not say what they replace, or say something else than the history does.
    odd: Vec<String>,
    /// Grants that are not what the history says of them.
    grants: Vec<String>,
    /// Grants the history says were made.
    made: HashSet<GrantId>,
}

/// Makes what follows from the whole history, in the order in which it happened. `tell` hears how many ops
/// are done.
fn replay(tx: &Tx<'_>, mut tell: impl FnMut(u64)) -> Result<Replayed, StoreError> {
    let mut replayed =
        Replayed { ops: 0, odd: Vec::new(), grants: Vec::new(), made: HashSet::new() };
    let floors = logs::floors(tx)?;
    ops::each(tx, |op| {
        let said = Said::read(op.op_id, op.kind, op.version, op.payload)?;
        let place = Place {
            log: op.log,
            cursor: op.cursor,
            now_ms: op.at_ms,
            granted: op.granted,
            only_own: false,
        };
        // Below the floor what was replaced is gone, and with it the knowledge of what it was.
        let whole = floors.get(&op.log).is_none_or(|floor| op.cursor > *floor);
        if whole && said.replaces(tx, place)? != op.replaces {
            let (log, cursor) = (op.log.0, op.cursor.0);
            replayed.odd.push(format!(
                "ops: in log {log} the op at {cursor} replaces another one than it says"
            ));
        }
        replayed.grants.extend(said.contradicted(tx)?);
        replayed.made.extend(said.made_grant());
        said.replay(tx, place)?;
        replayed.ops += 1;
        tell(replayed.ops);
        Ok(())
    })?;
    Ok(replayed)
}
