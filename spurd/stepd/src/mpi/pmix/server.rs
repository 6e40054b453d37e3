//! The process that serves PMIx to the tasks of a step on this node: a child of spurstepd that runs as the
//! job's user.
//!
//! The library has threads of its own and talks to programs of the user. So it is kept out of spurstepd, and
//! has the rights of those programs only. It ends when spurstepd closes the socket between them.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use prost::Message as _;
use spur_core::model::idset::IdSet;
use step_wire::order::{Identity, MpiOrder};
use step_wire::v1;
use step_wire::v1::pmix_down::Down;
use step_wire::v1::pmix_up::Up;

use super::abi::{
    ANY_RANK, Done, ERR_NOT_FOUND, ERR_NOT_SUPPORTED, Given, Info, Library, ModexDone, Module,
    OPERATION_SUCCEEDED, Proc, SUCCESS, Status,
};

/// The step that the server serves.
pub(crate) struct Served<'a> {
    /// The name of the step for the library.
    pub(crate) namespace: String,
    pub(crate) order: &'a MpiOrder,
    /// The ranks of this node's tasks, by their local ids.
    pub(crate) ranks: Vec<u32>,
    pub(crate) identity: &'a Identity,
    /// A directory that belongs to the user.
    pub(crate) directory: &'a Path,
}

/// The state that the library's callbacks use.
struct Upcalls {
    socket: Mutex<UnixStream>,
    namespace: String,
    /// Callbacks that wait for an answer of another node, with their argument, by question number.
    waiting: Mutex<BTreeMap<u64, (ModexDone, usize)>>,
    questions: AtomicU64,
}

static UPCALLS: OnceLock<Upcalls> = OnceLock::new();

/// Serves until spurstepd closes its end.
pub(crate) fn serve(served: &Served<'_>, socket: UnixStream) {
    let Ok(mut reader) = socket.try_clone() else { return };
    let upcalls = UPCALLS.get_or_init(|| Upcalls {
        socket: Mutex::new(socket),
        namespace: served.namespace.clone(),
        waiting: Mutex::new(BTreeMap::new()),
        questions: AtomicU64::new(0),
    });
    let started = Library::load().and_then(|library| {
        let tasks = start(&library, served)?;
        Ok((library, tasks))
    });
    let library = match started {
        Ok((library, tasks)) => {
            upcalls.tell(Up::Ready(v1::PmixReady { tasks }));
            library
        }
        Err(why) => return upcalls.tell(Up::Refused(why)),
    };
    let mut received = Vec::new();
    let mut part = [0; 64 << 10];
    loop {
        match reader.read(&mut part) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        while let Some(down) = super::take::<v1::PmixDown>(&mut received) {
            match down.down {
                Some(Down::Answer(answer)) => upcalls.answer(answer),
                Some(Down::Modex(asked)) => upcalls.ask(&library, &asked),
                None => {}
            }
        }
    }
    library.finalize(&served.namespace);
    // The directory itself belongs to spurd, which removes it with everything left in it.
    let _ = std::fs::remove_dir_all(served.directory);
}

/// Starts the server, and returns the variables for the environment of each task.
fn start(library: &Library, served: &Served<'_>) -> Result<Vec<v1::PmixTask>, String> {
    let Served { namespace, order, ranks, identity, directory } = served;
    let place = directory.display().to_string();
    let own = order.nodes.get(order.node as usize).map_or("", |node| node.name.as_str());
    let mut module = Module::empty();
    module.client_connected = Some(client_connected);
    module.client_finalized = Some(client_finalized);
    module.abort = Some(abort);
    module.fence = Some(fence);
    module.direct_modex = Some(direct_modex);
    module.register_events = Some(register_events);
    library.init(
        module,
        vec![
            Info::new("pmix.srvr.tmpdir", Given::Text(place.clone())),
            Info::new("pmix.hname", Given::Text(own.to_owned())),
        ],
    )?;
    library.register_namespace(namespace, ranks.len(), describe(library, served, &place)?)?;
    let task = |&rank: &u32| {
        let task = Proc::new(namespace, rank);
        library.register_client(&task, identity.uid, identity.gid)?;
        let environment = library.environment(&task)?;
        let pairs = environment.into_iter().map(|(key, value)| v1::Variable { key, value });
        Ok(v1::PmixTask { environment: pairs.collect() })
    };
    ranks.iter().map(task).collect()
}

/// Returns the facts about the step that tasks may ask for.
fn describe(library: &Library, served: &Served<'_>, place: &str) -> Result<Vec<Info>, String> {
    let Served { namespace, order, ranks, .. } = served;
    let size: u32 = order.nodes.iter().map(|node| node.ranks.len()).sum();
    let here = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let names: Vec<&str> = order.nodes.iter().map(|node| node.name.as_str()).collect();
    let listed = |ranks: &IdSet| ranks.iter().map(|rank| rank.to_string()).collect::<Vec<_>>().join(",");
    let lists: Vec<String> = order.nodes.iter().map(|node| listed(&node.ranks)).collect();
    let peers = lists.get(order.node as usize).cloned().unwrap_or_default();
    let number = |key: &str, value: u32| Info::new(key, Given::Number(value));
    let mut infos = vec![
        Info::new("pmix.jobid", Given::Text(namespace.clone())),
        number("pmix.univ.size", size),
        number("pmix.job.size", size),
        number("pmix.max.size", size),
        number("pmix.local.size", here),
        number("pmix.node.size", here),
        number("pmix.num.nodes", u32::try_from(names.len()).unwrap_or(u32::MAX)),
        Info::new("pmix.nmap", Given::Map(library.nodes(&names)?)),
        Info::new("pmix.pmap", Given::Map(library.ranks(&lists)?)),
        Info::new("pmix.lpeers", Given::Text(peers)),
        Info::new("pmix.lldr", Given::Rank(ranks.iter().copied().min().unwrap_or(0))),
        Info::new("pmix.aldr", Given::Rank(0)),
        Info::new("pmix.tmpdir", Given::Text(place.to_owned())),
        Info::new("pmix.nsdir", Given::Text(place.to_owned())),
        Info::new("pmix.tdir.rmclean", Given::Flag(true)),
        Info::new("pmix.spawned", Given::Flag(false)),
    ];
    for (number, node) in (0_u32..).zip(&order.nodes) {
        for (local, rank) in (0_u16..).zip(node.ranks.iter()) {
            infos.push(Info::new("pmix.pdata", Given::All(about_task(rank, local, number, &node.name))));
        }
    }
    Ok(infos)
}

fn about_task(rank: u32, local: u16, number: u32, node: &str) -> Vec<Info> {
    vec![
        Info::new("pmix.rank", Given::Rank(rank)),
        Info::new("pmix.appnum", Given::Number(0)),
        Info::new("pmix.grank", Given::Rank(rank)),
        Info::new("pmix.apprank", Given::Rank(rank)),
        Info::new("pmix.hname", Given::Text(node.to_owned())),
        Info::new("pmix.nodeid", Given::Number(number)),
        Info::new("pmix.lrank", Given::Small(local)),
        Info::new("pmix.nrank", Given::Small(local)),
    ]
}

impl Upcalls {
    /// Sends a message to spurstepd, which always reads.
    fn tell(&self, up: Up) {
        let bytes = v1::PmixUp { up: Some(up) }.encode_length_delimited_to_vec();
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // Without spurstepd this process is about to end.
        let _ = socket.write_all(&bytes);
    }

    /// Stores a callback that waits for an answer, and returns the number of the question.
    fn wait(&self, call: ModexDone, data: *mut c_void) -> u64 {
        let id = self.questions.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(id, (call, data as usize));
        id
    }

    fn answer(&self, answer: v1::PmixData) {
        unsafe extern "C" fn release(data: *mut c_void) {
            // SAFETY: `data` is the box given away below, and is released once.
            drop(unsafe { Box::from_raw(data.cast::<prost::bytes::Bytes>()) });
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&answer.id);
        let Some((call, data)) = waiting else { return };
        let bytes = Box::new(answer.data);
        let (start, length) = if bytes.is_empty() { (ptr::null(), 0) } else { (bytes.as_ptr(), bytes.len()) };
        // SAFETY: the library has given both for this one call, and releases the bytes when it has read them.
        unsafe {
            call(
                answer.status,
                start.cast(),
                length,
                data as *mut c_void,
                Some(release),
                Box::into_raw(bytes).cast(),
            );
        }
    }

    /// Asks the library for the published data of a task here, which may not exist yet.
    fn ask(&self, library: &Library, asked: &v1::PmixModex) {
        unsafe extern "C" fn published(
            status: Status,
            start: *const c_char,
            length: usize,
            data: *mut c_void,
        ) {
            // SAFETY: the library's bytes stay until this returns.
            let bytes = unsafe { bytes_of(start, length) };
            if let Some(upcalls) = UPCALLS.get() {
                let data = v1::PmixData { id: data as u64, status, data: bytes.into() };
                upcalls.tell(Up::Published(data));
            }
        }
        let task = Proc::new(&self.namespace, asked.rank);
        let status = library.published(&task, published, asked.id as *mut c_void);
        if status != SUCCESS {
            let data = v1::PmixData { id: asked.id, status, ..v1::PmixData::default() };
            self.tell(Up::Published(data));
        }
    }

    /// True if the task belongs to this step.
    ///
    /// # Safety
    /// `task` has to be one that the library passed.
    unsafe fn knows(&self, task: *const Proc) -> bool {
        // SAFETY: the caller guarantees a valid task.
        let name = unsafe { &(*task).namespace };
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        &name[..end] == self.namespace.as_bytes()
    }
}

/// Copies bytes of the library.
///
/// # Safety
/// `start` has to be null, or point to `length` bytes.
unsafe fn bytes_of(start: *const c_char, length: usize) -> Vec<u8> {
    if start.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees the length.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}

/// Tells the library that an operation is complete.
fn finish(done: Option<Done>, data: *mut c_void) {
    if let Some(done) = done {
        // SAFETY: the library has given both for this one call.
        unsafe { done(SUCCESS, data) };
    }
}

unsafe extern "C" fn client_connected(
    task: *const Proc,
    _: *mut c_void,
    done: Option<Done>,
    _: *mut c_void,
) -> Status {
    if let Some(upcalls) = UPCALLS.get() {
        // SAFETY: the library passes the task that has connected.
        upcalls.tell(Up::Connected(unsafe { (*task).rank }));
    }
    // Before 5.0.8 the library passes no callback here.
    if done.is_some() { OPERATION_SUCCEEDED } else { SUCCESS }
}

/// Reports that a task has finalized PMIx.
///
/// The task waits until `done` is called, so spurstepd learns this before the end of the task.
unsafe extern "C" fn client_finalized(
    task: *const Proc,
    _: *mut c_void,
    done: Option<Done>,
    data: *mut c_void,
) -> Status {
    if let Some(upcalls) = UPCALLS.get() {
        // SAFETY: the library passes the task that has finalized.
        upcalls.tell(Up::Finalized(unsafe { (*task).rank }));
    }
    finish(done, data);
    SUCCESS
}

unsafe extern "C" fn abort(
    task: *const Proc,
    _: *mut c_void,
    status: c_int,
    message: *const c_char,
    _: *const Proc,
    _: usize,
    done: Option<Done>,
    data: *mut c_void,
) -> Status {
    let text = if message.is_null() {
        String::new()
    } else {
        // SAFETY: the text belongs to the library.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
    };
    if let Some(upcalls) = UPCALLS.get() {
        // SAFETY: the library passes the task that aborts.
        let rank = unsafe { (*task).rank };
        upcalls.tell(Up::Abort(v1::PmixAbort { rank, status, message: text }));
    }
    finish(done, data);
    SUCCESS
}

unsafe extern "C" fn fence(
    tasks: *const Proc,
    count: usize,
    _: *const Info,
    _: usize,
    start: *mut c_char,
    length: usize,
    done: ModexDone,
    data: *mut c_void,
) -> Status {
    let Some(upcalls) = UPCALLS.get() else { return ERR_NOT_SUPPORTED };
    // SAFETY: the library passes this number of tasks.
    let tasks = unsafe { std::slice::from_raw_parts(tasks, count) };
    // SAFETY: the tasks belong to the library.
    if tasks.iter().any(|task| !unsafe { upcalls.knows(task) }) {
        return ERR_NOT_SUPPORTED;
    }
    let all = tasks.iter().any(|task| task.rank == ANY_RANK);
    let ranks: IdSet = tasks.iter().map(|task| task.rank).filter(|_| !all).collect();
    // SAFETY: there are this many bytes, and the callee has to free them.
    let brought = unsafe {
        let brought = bytes_of(start, length);
        libc::free(start.cast());
        brought
    };
    let id = upcalls.wait(done, data);
    let ranks = if all { String::new() } else { ranks.to_string() };
    upcalls.tell(Up::Fence(v1::PmixFence { id, ranks, data: brought.into() }));
    SUCCESS
}

unsafe extern "C" fn direct_modex(
    task: *const Proc,
    _: *const Info,
    _: usize,
    done: ModexDone,
    data: *mut c_void,
) -> Status {
    let Some(upcalls) = UPCALLS.get() else { return ERR_NOT_SUPPORTED };
    // SAFETY: the library passes a task.
    if !unsafe { upcalls.knows(task) } {
        return ERR_NOT_FOUND;
    }
    let id = upcalls.wait(done, data);
    // SAFETY: the library passes a task.
    upcalls.tell(Up::Modex(v1::PmixModex { id, rank: unsafe { (*task).rank } }));
    SUCCESS
}

/// Accepts the registration of events, of which Spur has none.
unsafe extern "C" fn register_events(
    _: *const c_int,
    _: usize,
    _: *const Info,
    _: usize,
    _: Option<Done>,
    _: *mut c_void,
) -> Status {
    OPERATION_SUCCEEDED
}
