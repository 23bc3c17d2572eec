//! `Upload`: something long on its way, before a part names it.

use super::decode;
use super::error::to_wire;
use super::scope::Claim;
use crate::engine::{Refusal, Submitted, UPLOAD_REFUSED, Uploading};
use crate::limits::UPLOAD_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::content::ContentRef;
use crate::model::ids::LogId;
use crate::model::rights::Right;
use crate::wire::session_capnp::upload;
use std::rc::Rc;

struct Upload {
    claim: Claim,
    session: LogId,
    content: ContentRef,
}

pub(super) fn client(claim: Claim, session: LogId, content: ContentRef) -> upload::Client {
    capnp_rpc::new_client(Upload { claim: claim.about(session), session, content })
}

/// What is wrong with a piece.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error("what came does not have the hash it was said to have; send all of it again")]
    Hash,
    #[error("a piece is {0} bytes long; the most accepted is {UPLOAD_BYTES_MAX}")]
    TooLong(usize),
}

impl Coded for Wrong {
    fn code(&self) -> Code {
        match self {
            Wrong::Hash => Code::ContentMalformed,
            Wrong::TooLong(_) => Code::OpTooLarge,
        }
    }
}

impl Upload {
    fn send(&self, offset: u64, data: &[u8]) -> capnp::Result<Submitted<u64>> {
        let house = self.claim.require(Right::Append)?;
        let (grant, session, content) = (self.claim.grant(), self.session, self.content);
        let data = data.to_vec();
        Ok(house.engine.upload(Uploading { grant, session, content, offset, data }))
    }
}

fn received(answer: Result<u64, Refusal>) -> capnp::Result<u64> {
    match answer.map_err(to_wire)? {
        UPLOAD_REFUSED => Err(to_wire(Wrong::Hash)),
        received => Ok(received),
    }
}

impl upload::Server for Upload {
    fn write(
        self: Rc<Self>,
        params: upload::WriteParams,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let sent = params
            .get()
            .map_err(decode::Malformed::from)
            .and_then(|params| Ok((params.get_offset(), params.get_data()?)))
            .map_err(to_wire)
            .and_then(|(offset, data)| match data.len() {
                bytes if bytes > UPLOAD_BYTES_MAX => Err(to_wire(Wrong::TooLong(bytes))),
                bytes => Ok((self.send(offset, data)?, self.claim.stream(bytes))),
            });
        drop(params);
        async move {
            let (sent, _streamed) = sent?;
            received(sent.answer().await).map(drop)
        }
    }

    fn finish(
        self: Rc<Self>,
        params: upload::FinishParams,
        mut results: upload::FinishResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        drop(params);
        // An empty piece at the beginning only asks how much is there.
        let sent = self.send(0, &[]);
        async move {
            results.get().set_offset(received(sent?.answer().await)?);
            Ok(())
        }
    }
}
