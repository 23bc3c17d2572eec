//! Methods of sessions, turns and what goes with them, and the right each needs.

use super::{Held, Inside, LogId, OpId, Right, Try, header, sent, session};
use crate::model::ids::{Cursor, TurnId};
use crate::wire::session_capnp::{part_writer, turn, upload};
use capnp::capability::Promise;

/// See [`super::METHODS`].
pub(super) const METHODS: &[(&str, Option<Right>, Try)] = &[
    ("Root.listSessions", Some(Right::Read), |Held { root, .. }, _| {
        sent!(root.list_sessions_request())
    }),
    ("Root.session", Some(Right::Read), |Held { root, .. }, _| {
        let mut request = root.session_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Root.setRules", Some(Right::Admin), |Held { root, .. }, n| {
        let mut request = root.set_rules_request();
        header(request.get().init_op(), n.wrapping_add(170));
        sent!(request)
    }),
    ("Project.listSessions", Some(Right::Read), |Held { project, .. }, _| {
        sent!(project.list_sessions_request())
    }),
    ("Project.setRules", Some(Right::Admin), |Held { project, .. }, n| {
        let mut request = project.set_rules_request();
        header(request.get().init_op(), n.wrapping_add(171));
        sent!(request)
    }),
    ("Project.removeSession", Some(Right::Admin), |Held { project, .. }, n| {
        let mut request = project.remove_session_request();
        header(request.get().init_op(), n.wrapping_add(172));
        request.get().set_id("nobody");
        sent!(request)
    }),
    ("Session.parts", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.parts_request();
        request.get().set_message_id("m");
        sent!(request)
    }),
    ("Session.content", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.content_request();
        request.get().set_hash(&[1; 32]);
        sent!(request)
    }),
    ("Session.upload", Some(Right::Append), |held, n| sent!(uploading(held, n))),
    ("Session.beginTurn", Some(Right::Turn), |Held { session, .. }, n| {
        let mut request = session.begin_turn_request();
        header(request.get().init_op(), n.wrapping_add(175));
        request.get().init_turn().init_message();
        sent!(request)
    }),
    ("Session.turn", Some(Right::Turn), |Held { session, .. }, _| {
        let mut request = session.turn_request();
        request.get().set_id("t");
        sent!(request)
    }),
    ("Session.turns", Some(Right::Read), |Held { session, .. }, _| sent!(session.turns_request())),
    ("Session.todos", Some(Right::Read), |Held { session, .. }, _| sent!(session.todos_request())),
    // It needs `append`, and `read` as well: whoever has all of them may.
    ("Session.fork", Some(Right::Append), |Held { session, .. }, n| {
        let mut request = session.fork_request();
        header(request.get().init_op(), n.wrapping_add(176));
        request.get().init_fork();
        let promise = request.send().promise;
        Promise::from_future(async move {
            match promise.await {
                Err(error) if error.extra.contains("the right \"read\"") => Ok(()),
                answer => answer.map(|_| ()),
            }
        })
    }),
    ("Session.children", Some(Right::Delegate), |Held { session, .. }, _| {
        sent!(session.children_request())
    }),
    ("Session.context", Some(Right::Read), |Held { session, .. }, _| {
        sent!(session.context_request())
    }),
    ("Session.plan", Some(Right::Read), |Held { session, .. }, _| sent!(session.plan_request())),
    ("Session.checkpoints", Some(Right::Read), |Held { session, .. }, _| {
        sent!(session.checkpoints_request())
    }),
    ("Session.diffs", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.diffs_request();
        request.get().set_turn_id("t");
        sent!(request)
    }),
    ("Session.permits", Some(Right::Read), |Held { session, .. }, _| {
        sent!(session.permits_request())
    }),
    ("Turn.info", Some(Right::Read), |Held { turn, .. }, _| sent!(turn.info_request())),
    ("Turn.addMessage", Some(Right::Turn), |Held { turn, .. }, n| {
        let mut request = turn.add_message_request();
        header(request.get().init_op(), n.wrapping_add(180));
        request.get().init_message();
        sent!(request)
    }),
    ("Turn.putPart", Some(Right::Turn), |held, n| sent!(open_part(held, n.wrapping_add(190)))),
    ("Turn.partWriter", Some(Right::Turn), |Held { turn, .. }, _| {
        let mut request = turn.part_writer_request();
        request.get().set_message_id("m");
        request.get().set_part_id("p");
        sent!(request)
    }),
    ("Turn.heartbeat", Some(Right::Turn), |Held { turn, .. }, _| sent!(turn.heartbeat_request())),
    ("Turn.finish", Some(Right::Turn), |Held { turn, .. }, n| {
        let mut request = turn.finish_request();
        header(request.get().init_op(), n.wrapping_add(210));
        // Under an epoch that never was, so that the turn the others are tried on goes on.
        request.get().get_op().unwrap().set_capability_epoch(99);
        sent!(request)
    }),
    // A streaming call says only that more may be sent; the one behind it hears what became of it.
    ("PartWriter.delta", Some(Right::Turn), |held, n| {
        let writer: part_writer::Client =
            open_part(held, n.wrapping_add(220)).send().pipeline.get_writer();
        let mut request = writer.delta_request();
        request.get().set_text("t");
        let written = request.send();
        Promise::from_future(async move {
            written.await?;
            writer.flush_request().send().promise.await.map(|_| ())
        })
    }),
    ("PartWriter.flush", Some(Right::Turn), |held, n| {
        sent!(open_part(held, n.wrapping_add(235)).send().pipeline.get_writer().flush_request())
    }),
    ("Upload.write", Some(Right::Append), |held, n| {
        let upload: upload::Client = uploading(held, n).send().pipeline.get_upload();
        let mut request = upload.write_request();
        request.get().set_data(b"x");
        let written = request.send();
        Promise::from_future(async move {
            written.await?;
            upload.finish_request().send().promise.await.map(|_| ())
        })
    }),
    ("Upload.finish", Some(Right::Append), |held, n| {
        sent!(uploading(held, n).send().pipeline.get_upload().finish_request())
    }),
];

fn open_part(
    Held { turn, .. }: &Held,
    n: u8,
) -> capnp::capability::Request<
    crate::wire::session_capnp::turn::put_part_params::Owned,
    crate::wire::session_capnp::turn::put_part_results::Owned,
> {
    let mut request = turn.put_part_request();
    header(request.get().init_op(), n);
    let mut put = request.get().init_part();
    put.set_open(true);
    put.init_part().set_text("");
    request
}

fn uploading(
    Held { session, .. }: &Held,
    n: u8,
) -> capnp::capability::Request<
    crate::wire::session_capnp::session::upload_params::Owned,
    crate::wire::session_capnp::session::upload_results::Owned,
> {
    let mut request = session.upload_request();
    let mut content = request.get().init_content();
    content.set_hash(&[n; 32]);
    content.set_bytes(100);
    request
}

/// A turn that runs, and what it is known by.
pub(super) async fn begin_turn(session: &session::Client) -> (turn::Client, TurnId, Cursor) {
    let mut request = session.begin_turn_request();
    header(request.get().init_op(), 203);
    request.get().init_turn().init_message();
    let answer = request.send().promise.await.unwrap();
    let turn = answer.get().unwrap().get_turn().unwrap();
    let info = turn.info_request().send().promise.await.unwrap();
    let cursor = Cursor(info.get().unwrap().get_turn().unwrap().get_cursor());
    (turn, TurnId::made_by(OpId([203; 16])), cursor)
}

pub(super) async fn project_id_of(held: &Held) -> crate::model::ids::ProjectId {
    let answer = held.project.info_request().send().promise.await.unwrap();
    let id = answer.get().unwrap().get_project().unwrap().get_id().unwrap().to_string();
    crate::model::ids::ProjectId::parse(&id.unwrap()).unwrap()
}

pub(super) async fn session_key_of(
    inside: &Inside,
    held: &Held,
    project: LogId,
) -> crate::model::infos::SessionKey {
    let answer = held.session.info_request().send().promise.await.unwrap();
    let id = answer.get().unwrap().get_session().unwrap().get_id().unwrap().to_string();
    let id = crate::model::ids::SessionId::parse(&id.unwrap()).unwrap();
    inside.house.readers.session(project, id).await.unwrap()
}
