//! What a client sees on failure: the code, what to do about it, and a text for people.

use crate::model::code::Code;
use crate::model::code::{Advice, Coded};
use crate::model::rights::Right;

/// Turns any error with a code into the exception that crosses the wire.
pub(super) fn to_wire(error: impl Coded) -> capnp::Error {
    exception(error.code().advice(), error.code().text(&error))
}

fn exception(advice: Advice, text: String) -> capnp::Error {
    match advice {
        Advice::No => capnp::Error::failed(text),
        Advice::Later => capnp::Error::overloaded(text),
        Advice::Reconnect => capnp::Error::disconnected(text),
    }
}

/// Refusals that belong to the door itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum Denied {
    #[error("this object does not carry the right {:?}", .0.word())]
    Right(Right),
    #[error("this object may see only what was written under its own grant")]
    OwnOnly,
    #[error("this object may be used for some paths only, and a sandbox has all of them")]
    Paths,
    #[error("the connection this object came from has ended")]
    ConnectionOver,
    #[error("this connection holds as many live objects as the server allows; release some")]
    TooManyObjects,
    #[error("the server is stopping; no feed was begun")]
    Stopping,
    #[error("this connection has as many feeds running as the server allows; drop a subscription")]
    TooManyFeeds,
    #[error("this connection has as many ops under way as the server allows; wait for acks")]
    TooManyOps,
    #[error(
        "this op was decided, and its result was acknowledged and dropped; look the object up by its id"
    )]
    ResultDropped,
    #[error("the server made a mistake; its log says more")]
    Internal,
}

impl Coded for Denied {
    fn code(&self) -> Code {
        match self {
            Denied::Right(_) | Denied::OwnOnly | Denied::Paths => Code::NotPermitted,
            Denied::ConnectionOver => Code::ConnectionOver,
            Denied::TooManyObjects => Code::TooManyObjects,
            Denied::Stopping => Code::ShuttingDown,
            Denied::TooManyFeeds => Code::TooManySubscriptions,
            Denied::TooManyOps => Code::TooManyCalls,
            Denied::ResultDropped => Code::ResultDropped,
            Denied::Internal => Code::Internal,
        }
    }
}

/// A refusal read back from a receipt: its code is text by then, perhaps one of another version.
pub(super) fn recorded(code: &str, text: &str) -> capnp::Error {
    let advice = Code::named(code).map_or(Advice::No, Code::advice);
    exception(advice, format!("bowline/{code}: {text}"))
}
