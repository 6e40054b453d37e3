use std::io::{Read, Write};

use step_wire::order::{MpiNode, MpiPlugin};

use super::*;

/// Returns a server with the two tasks of its node, of a step of three tasks.
fn served() -> (Server, Vec<UnixStream>) {
    let node = |name: &str, ranks: &str| MpiNode { name: name.to_owned(), ranks: ranks.parse().unwrap() };
    let order = MpiOrder {
        plugin: MpiPlugin::Pmi2,
        node: 0,
        nodes: vec![node("n1", "0-1"), node("n2", "2")],
        first: String::new(),
        first_step: None,
    };
    let mut server = Server::new(&order, JobId(7), StepId(1), [0, 1].into_iter());
    let tasks = (0..2).map(|index| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let variables = server.connect(index, ours);
        let expected = [("PMI_RANK", index.to_string()), ("PMI_SIZE", "3".to_owned())];
        assert_eq!(variables[..2], expected.map(|(name, value)| (name.to_owned(), value)));
        theirs
    });
    let tasks = tasks.collect();
    (server, tasks)
}

fn said(task: &mut UnixStream) -> String {
    let mut bytes = [0; 4096];
    match task.read(&mut bytes) {
        Ok(count) => String::from_utf8(bytes[..count].to_vec()).unwrap(),
        Err(_) => String::new(),
    }
}

/// Plays a dialogue of task 0: requests, each with the expected reply.
fn dialogue(server: &mut Server, task: &mut UnixStream, turns: &[(&str, &str)]) {
    for (request, reply) in turns {
        task.write_all(request.as_bytes()).unwrap();
        server.serve(0);
        assert_eq!(said(task), *reply, "{request}");
    }
}

#[test]
fn pmi_1_is_spoken() {
    let (mut server, mut tasks) = served();
    dialogue(
        &mut server,
        &mut tasks[0],
        &[
            (
                "cmd=init pmi_version=1 pmi_subversion=1\n",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            ),
            ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
            ("cmd=get_appnum\n", "cmd=appnum appnum=0\n"),
            ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=7.1\n"),
            ("cmd=get_universe_size\n", "cmd=universe_size size=3\n"),
            (
                "cmd=get kvsname=7.1 key=PMI_process_mapping\n",
                "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))\n",
            ),
            ("cmd=put kvsname=7.1 key=-a-0 value=x\n", "cmd=put_result rc=0 msg=success\n"),
            ("cmd=get kvsname=7.1 key=-a-0\n", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"),
            ("mcmd=spawn\nnprocs=1\nendcmd\n", "cmd=spawn_result rc=-1 status=steps_do_not_grow\n"),
            ("cmd=barrier_in\n", ""),
        ],
    );
    assert_eq!(server.take_news(), []);
    tasks[1].write_all(b"cmd=barrier_in\n").unwrap();
    server.serve(1);
    let [News::Fence(brought)] = &server.take_news()[..] else { panic!("all tasks here are in") };
    let others = v1::Entries { entries: vec![v1::Entry { key: "-a-2".into(), value: "y".into() }] };
    server.fenced(&[brought.clone(), others.encode_to_vec()].concat()).unwrap();
    assert_eq!(
        (said(&mut tasks[0]), said(&mut tasks[1])),
        ("cmd=barrier_out\n".into(), "cmd=barrier_out\n".into())
    );
    dialogue(
        &mut server,
        &mut tasks[0],
        &[
            ("cmd=get kvsname=7.1 key=-a-0\n", "cmd=get_result rc=0 msg=success value=x\n"),
            ("cmd=get kvsname=7.1 key=-a-2\n", "cmd=get_result rc=0 msg=success value=y\n"),
            ("cmd=lookup_name service=s\n", ""),
        ],
    );
    assert_eq!(server.take_news(), [News::Ask(0, Question::Lookup("s".into()))]);
    server.replied(0, 0, b"port");
    assert_eq!(said(&mut tasks[0]), "cmd=lookup_result rc=0 info=ok port=port\n");
    assert!(server.has_deserted(0));
    dialogue(&mut server, &mut tasks[0], &[("cmd=finalize\n", "cmd=finalize_ack\n")]);
    assert!(!server.has_deserted(0));
}

#[test]
fn pmi_2_is_spoken() {
    let (mut server, mut tasks) = served();
    let framed = |text: &str| format!("{:<6}{text}", text.len());
    let turns = [
        (
            "cmd=fullinit;pmijobid=7.1;pmirank=0;threaded=FALSE;",
            "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=3;appnum=0;debugged=FALSE;pmiverbose=FALSE;",
        ),
        ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=7.1;"),
        ("cmd=info-getjobattr;key=universeSize;", "cmd=info-getjobattr-response;rc=0;found=TRUE;value=3;"),
        ("cmd=info-getjobattr;key=other;", "cmd=info-getjobattr-response;rc=0;found=FALSE;"),
        ("cmd=kvs-put;key=k;value=a;;b;", "cmd=kvs-put-response;rc=0;"),
        ("cmd=info-getnodeattr;key=n;wait=FALSE;", "cmd=info-getnodeattr-response;rc=0;found=FALSE;"),
        ("cmd=spawn;ncmds=1;", "cmd=spawn-response;rc=14;errmsg=a step does not grow: no task was spawned;"),
    ];
    dialogue(
        &mut server,
        &mut tasks[0],
        &[(
            "cmd=init pmi_version=2 pmi_subversion=0\n",
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n",
        )],
    );
    for (request, reply) in turns {
        dialogue(&mut server, &mut tasks[0], &[(&framed(request), &framed(reply))]);
    }
    // A task that waits for an attribute is answered when another task of the node sets it.
    dialogue(&mut server, &mut tasks[0], &[(&framed("cmd=info-getnodeattr;key=n;wait=TRUE;"), "")]);
    tasks[1].write_all(b"cmd=init pmi_version=2 pmi_subversion=0\n").unwrap();
    tasks[1].write_all(framed("cmd=info-putnodeattr;key=n;value=v;").as_bytes()).unwrap();
    server.serve(1);
    assert_eq!(said(&mut tasks[0]), framed("cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;"));
    said(&mut tasks[1]);
    dialogue(&mut server, &mut tasks[0], &[(&framed("cmd=kvs-fence;thrid=5;"), "")]);
    tasks[1].write_all(framed("cmd=kvs-fence;").as_bytes()).unwrap();
    server.serve(1);
    let [News::Fence(brought)] = &server.take_news()[..] else { panic!("all tasks here are in") };
    server.fenced(&brought.clone()).unwrap();
    assert_eq!(said(&mut tasks[0]), framed("cmd=kvs-fence-response;thrid=5;rc=0;"));
    dialogue(
        &mut server,
        &mut tasks[0],
        &[(
            &framed("cmd=kvs-get;jobid=7.1;srcid=0;key=k;"),
            &framed("cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b;"),
        )],
    );
    tasks[0].write_all(framed("cmd=abort;isworld=TRUE;msg=no more;").as_bytes()).unwrap();
    server.serve(0);
    assert_eq!(server.take_news(), [News::Abort(0, "called abort: no more".to_owned())]);
}

#[test]
fn a_task_that_leaves_in_the_middle_has_deserted() {
    let (mut server, mut tasks) = served();
    tasks[0].write_all(b"cmd=init pmi_version=1 pmi_subversion=1\n").unwrap();
    drop(tasks.remove(0));
    server.serve(0);
    assert!(server.has_deserted(0));
    assert!(!server.has_deserted(1), "a task that never began may leave");
    assert_eq!(server.sockets().count(), 1);
}

/// Commands of a task that does not read its answers stay in its socket.
#[test]
fn a_task_that_does_not_read_is_not_heard() {
    let (mut server, mut tasks) = served();
    tasks[0].write_all(b"cmd=init pmi_version=1 pmi_subversion=1\n").unwrap();
    server.serve(0);
    let get = b"cmd=get kvsname=7.1 key=PMI_process_mapping\n";
    let mut accepted = 0;
    // Until the server and both sockets are full.
    for _ in 0..100_000 {
        match tasks[0].write(get) {
            Ok(count) => accepted += count,
            Err(_) => {
                server.serve(0);
                if server.sockets().any(|(index, _, flags)| index == 0 && !flags.contains(PollFlags::IN)) {
                    break;
                }
            }
        }
    }
    let flags = server.sockets().next().map(|(_, _, flags)| flags);
    assert_eq!(flags, Some(PollFlags::OUT), "{accepted} bytes were taken");
    // Once the answers are read, the rest is handled.
    while !said(&mut tasks[0]).is_empty() {
        server.serve(0);
    }
    let flags = server.sockets().next().map(|(_, _, flags)| flags);
    assert_eq!(flags, Some(PollFlags::IN));
}

#[test]
fn a_task_waits_for_one_thing_at_a_time() {
    let (mut server, mut tasks) = served();
    tasks[0]
        .write_all(b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\ncmd=lookup_name service=s\n")
        .unwrap();
    server.serve(0);
    assert_eq!(server.take_news(), [], "it asks for nothing");
    assert!(server.sockets().all(|(index, ..)| index != 0), "its socket is closed");
}
