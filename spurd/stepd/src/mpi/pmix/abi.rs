//! The functions of the system's PMIx library that a server needs, and their argument types.
//!
//! The library is loaded when a step needs it; nothing is linked to it. Its structures have been the same
//! since version 4 of OpenPMIx (`pmix_common.h`, `pmix_server.h`). Newer versions call more functions of a
//! server, which are null here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{transmute_copy, zeroed};
use std::ptr;
use std::sync::mpsc;

/// File name of the library since its version 2.
const NAME: &CStr = c"libpmix.so.2";
/// The first major version with these structures.
const OLDEST: u32 = 4;

pub(crate) type Status = c_int;
pub(crate) const SUCCESS: Status = 0;
pub(crate) const ERR_NOT_FOUND: Status = -46;
pub(crate) const ERR_NOT_SUPPORTED: Status = -47;
/// The operation is complete, and no callback follows.
pub(crate) const OPERATION_SUCCEEDED: Status = -157;
/// Every task of a namespace.
pub(crate) const ANY_RANK: u32 = u32::MAX - 1;

/// `pmix_op_cbfunc_t` of the library.
pub(crate) type Done = unsafe extern "C" fn(Status, *mut c_void);
/// `pmix_release_cbfunc_t` of the library.
pub(crate) type Release = unsafe extern "C" fn(*mut c_void);
/// `pmix_modex_cbfunc_t` of the library.
pub(crate) type ModexDone =
    unsafe extern "C" fn(Status, *const c_char, usize, *mut c_void, Option<Release>, *mut c_void);
/// `pmix_dmodex_response_fn_t` of the library.
pub(crate) type Published = unsafe extern "C" fn(Status, *const c_char, usize, *mut c_void);

/// `pmix_proc_t` of the library.
#[repr(C)]
pub(crate) struct Proc {
    pub(crate) namespace: [u8; 256],
    pub(crate) rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    start: *mut c_char,
    length: usize,
}

#[repr(C)]
union Data {
    flag: bool,
    text: *mut c_char,
    small: u16,
    number: u32,
    bytes: Bytes,
    array: *mut Array,
    room: [u64; 3],
}

/// `pmix_value_t` of the library.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_data_array_t` of the library.
#[repr(C)]
struct Array {
    kind: u16,
    length: usize,
    items: *mut c_void,
}

/// `pmix_info_t` of the library.
#[repr(C)]
pub(crate) struct Info {
    key: [u8; 512],
    flags: u32,
    value: Value,
}

const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);

/// A value with its PMIx type.
pub(crate) enum Given {
    Flag(bool),
    Text(String),
    Small(u16),
    Number(u32),
    Rank(u32),
    /// The result of [`Library::nodes`] or [`Library::ranks`].
    Map(Map),
    All(Vec<Info>),
}

/// A map of nodes or ranks in the library's own form.
#[derive(Clone, Copy)]
pub(crate) struct Map(*mut c_char);

impl Info {
    /// Returns a key with its value, which lives as long as the process.
    pub(crate) fn new(key: &str, given: Given) -> Info {
        let mut room = [0; 512];
        room[..key.len()].copy_from_slice(key.as_bytes());
        let mut data = Data { room: [0; 3] };
        let kind = match given {
            Given::Flag(flag) => {
                data.flag = flag;
                1
            }
            Given::Text(text) => {
                data.text = lasting(&text);
                3
            }
            Given::Small(small) => {
                data.small = small;
                13
            }
            Given::Number(number) => {
                data.number = number;
                14
            }
            Given::Rank(rank) => {
                data.number = rank;
                40
            }
            Given::Map(Map(start)) => {
                // SAFETY: the library made the map as a text that ends with zero.
                let length = unsafe { CStr::from_ptr(start) }.to_bytes_with_nul().len();
                data.bytes = Bytes { start, length };
                49
            }
            Given::All(infos) => {
                let infos = Vec::leak(infos);
                let array = Array { kind: 24, length: infos.len(), items: infos.as_mut_ptr().cast() };
                data.array = Box::leak(Box::new(array));
                39
            }
        };
        Info { key: room, flags: 0, value: Value { kind, data } }
    }
}

/// Returns a C string that lives as long as the process.
fn lasting(text: &str) -> *mut c_char {
    CString::new(text.replace('\0', "")).unwrap_or_default().into_raw()
}

impl Proc {
    /// Returns a task of a namespace.
    pub(crate) fn new(namespace: &str, rank: u32) -> Proc {
        let mut room = [0; 256];
        room[..namespace.len()].copy_from_slice(namespace.as_bytes());
        Proc { namespace: room, rank }
    }
}

/// `pmix_server_module_t`: the functions that the library calls, in the order of its header, with space for
/// those that newer versions add.
#[repr(C)]
pub(crate) struct Module {
    pub(crate) client_connected:
        Option<unsafe extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> Status>,
    pub(crate) client_finalized:
        Option<unsafe extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> Status>,
    pub(crate) abort: Option<
        unsafe extern "C" fn(
            *const Proc,
            *mut c_void,
            c_int,
            *const c_char,
            *const Proc,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> Status,
    >,
    pub(crate) fence: Option<
        unsafe extern "C" fn(
            *const Proc,
            usize,
            *const Info,
            usize,
            *mut c_char,
            usize,
            ModexDone,
            *mut c_void,
        ) -> Status,
    >,
    pub(crate) direct_modex:
        Option<unsafe extern "C" fn(*const Proc, *const Info, usize, ModexDone, *mut c_void) -> Status>,
    /// publish, lookup, unpublish, spawn, connect, disconnect: not provided.
    others: [*const c_void; 6],
    pub(crate) register_events: Option<
        unsafe extern "C" fn(*const c_int, usize, *const Info, usize, Option<Done>, *mut c_void) -> Status,
    >,
    more: [*const c_void; 32],
}

impl Module {
    /// Returns a module without functions.
    pub(crate) fn empty() -> Module {
        // SAFETY: all fields are pointers, which may be null.
        unsafe { zeroed() }
    }
}

/// The loaded library.
pub(crate) struct Library {
    init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> Status,
    finalize: unsafe extern "C" fn() -> Status,
    register_namespace:
        unsafe extern "C" fn(*const c_char, c_int, *mut Info, usize, Done, *mut c_void) -> Status,
    deregister_namespace: unsafe extern "C" fn(*const c_char, Done, *mut c_void),
    register_client: unsafe extern "C" fn(*const Proc, u32, u32, *mut c_void, Done, *mut c_void) -> Status,
    setup_fork: unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> Status,
    dmodex_request: unsafe extern "C" fn(*const Proc, Published, *mut c_void) -> Status,
    generate_regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    generate_ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
}

impl Library {
    /// Loads the system's library.
    ///
    /// # Errors
    /// Fails if there is no library, or it is too old.
    pub(crate) fn load() -> Result<Library, String> {
        // SAFETY: the library is loaded once, by a process without other threads.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!(
                "{}; PMIx needs OpenPMIx {OLDEST} or newer on this node (Debian: libpmix2)",
                load_error()
            ));
        }
        // SAFETY: these are the types of the functions in the library's headers.
        let (version, library) = unsafe {
            let version: unsafe extern "C" fn() -> *const c_char = symbol(handle, c"PMIx_Get_version")?;
            let library = Library {
                init: symbol(handle, c"PMIx_server_init")?,
                finalize: symbol(handle, c"PMIx_server_finalize")?,
                register_namespace: symbol(handle, c"PMIx_server_register_nspace")?,
                deregister_namespace: symbol(handle, c"PMIx_server_deregister_nspace")?,
                register_client: symbol(handle, c"PMIx_server_register_client")?,
                setup_fork: symbol(handle, c"PMIx_server_setup_fork")?,
                dmodex_request: symbol(handle, c"PMIx_server_dmodex_request")?,
                generate_regex: symbol(handle, c"PMIx_generate_regex")?,
                generate_ppn: symbol(handle, c"PMIx_generate_ppn")?,
            };
            (CStr::from_ptr(version()).to_string_lossy().into_owned(), library)
        };
        match major(&version) {
            Some(number) if number >= OLDEST => Ok(library),
            _ => Err(format!("{} is `{version}`; {OLDEST} or newer is needed", NAME.to_string_lossy())),
        }
    }

    /// Starts the server.
    pub(crate) fn init(&self, module: Module, infos: Vec<Info>) -> Result<(), String> {
        let (module, infos) = (Box::leak(Box::new(module)), Vec::leak(infos));
        // SAFETY: both live as long as the process.
        accepted("PMIx_server_init", unsafe { (self.init)(module, infos.as_mut_ptr(), infos.len()) })
    }

    /// Ends the server; its files are removed.
    pub(crate) fn finalize(&self, namespace: &str) {
        let name = lasting(namespace);
        let forgotten = completed("PMIx_server_deregister_nspace", |done, data| {
            // SAFETY: the name lives as long as the process.
            unsafe { (self.deregister_namespace)(name, done, data) };
            SUCCESS
        });
        // SAFETY: the server was started, and is not used after this.
        let ended = accepted("PMIx_server_finalize", unsafe { (self.finalize)() });
        if let Err(error) = forgotten.and(ended) {
            eprintln!("spurstepd: {error}");
        }
    }

    /// Registers a namespace with `here` tasks on this node.
    pub(crate) fn register_namespace(&self, name: &str, here: usize, infos: Vec<Info>) -> Result<(), String> {
        let (name, infos) = (lasting(name), Vec::leak(infos));
        let here = c_int::try_from(here).unwrap_or(c_int::MAX);
        completed("PMIx_server_register_nspace", |done, data| {
            // SAFETY: the arguments live as long as the process.
            unsafe { (self.register_namespace)(name, here, infos.as_mut_ptr(), infos.len(), done, data) }
        })
    }

    /// Registers a task of this node.
    pub(crate) fn register_client(&self, task: &Proc, uid: u32, gid: u32) -> Result<(), String> {
        completed("PMIx_server_register_client", |done, data| {
            // SAFETY: the library copies the name of the task.
            unsafe { (self.register_client)(task, uid, gid, ptr::null_mut(), done, data) }
        })
    }

    /// Returns the variables by which a task finds the server.
    pub(crate) fn environment(&self, task: &Proc) -> Result<Vec<(String, String)>, String> {
        let mut list: *mut *mut c_char = ptr::null_mut();
        // SAFETY: a list that is null is an empty one.
        accepted("PMIx_server_setup_fork", unsafe { (self.setup_fork)(task, &raw mut list) })?;
        let mut variables = Vec::new();
        // SAFETY: the list is an array of texts that ends with null, and has no other owner.
        unsafe {
            while !list.is_null() && !(*list).is_null() {
                let entry = CStr::from_ptr(*list).to_string_lossy().into_owned();
                variables
                    .extend(entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
                list = list.add(1);
            }
        }
        Ok(variables)
    }

    /// Asks for the published data of a task of this node; `answer` is called with the data and with `data`.
    pub(crate) fn published(&self, task: &Proc, answer: Published, data: *mut c_void) -> Status {
        // SAFETY: the library copies the name of the task.
        unsafe { (self.dmodex_request)(task, answer, data) }
    }

    /// Returns the library's map of these nodes.
    pub(crate) fn nodes(&self, names: &[&str]) -> Result<Map, String> {
        made("PMIx_generate_regex", self.generate_regex, &names.join(","))
    }

    /// Returns the library's map of the ranks of each node.
    pub(crate) fn ranks(&self, ranks: &[String]) -> Result<Map, String> {
        made("PMIx_generate_ppn", self.generate_ppn, &ranks.join(";"))
    }
}

fn made(
    name: &str,
    function: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    text: &str,
) -> Result<Map, String> {
    let mut map = ptr::null_mut();
    // SAFETY: the text lives as long as the process, and the result has no other owner.
    accepted(name, unsafe { function(lasting(text), &raw mut map) })?;
    if map.is_null() { Err(format!("{name}: no map")) } else { Ok(Map(map)) }
}

fn accepted(name: &str, status: Status) -> Result<(), String> {
    match status {
        SUCCESS | OPERATION_SUCCEEDED => Ok(()),
        status => Err(format!("{name}: error {status}")),
    }
}

/// Waits until a call is complete, which may be reported by a callback.
fn completed(name: &str, call: impl FnOnce(Done, *mut c_void) -> Status) -> Result<(), String> {
    unsafe extern "C" fn done(status: Status, data: *mut c_void) {
        // SAFETY: `data` is the sender below, and the callback is called once.
        let sender = unsafe { Box::from_raw(data.cast::<mpsc::Sender<Status>>()) };
        // The caller waits for the message.
        let _ = sender.send(status);
    }
    let (sender, receiver) = mpsc::channel::<Status>();
    match call(done, Box::into_raw(Box::new(sender)).cast()) {
        SUCCESS => accepted(name, receiver.recv().unwrap_or(SUCCESS)),
        other => accepted(name, other),
    }
}

/// Returns a function of the library.
///
/// # Safety
/// `T` has to be the type of a pointer to that function.
unsafe fn symbol<T>(library: *mut c_void, name: &CStr) -> Result<T, String> {
    // SAFETY: the library stays loaded.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("{}: {}", NAME.to_string_lossy(), load_error()));
    }
    // SAFETY: both are pointers.
    Ok(unsafe { transmute_copy(&address) })
}

fn load_error() -> String {
    // SAFETY: this process has no other thread that loads libraries.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{} cannot be loaded", NAME.to_string_lossy());
    }
    // SAFETY: the text belongs to the C library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the first number in a version such as `OpenPMIx 4.2.2 (PMIx Standard: 4.1, …)`; `None` without a
/// number.
fn major(version: &str) -> Option<u32> {
    let from = version.find(|letter: char| letter.is_ascii_digit())?;
    let digits = &version[from..];
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_are_read() {
        for (version, expected) in [
            ("OpenPMIx 4.2.2 (PMIx Standard: 4.1, Stable ABI: 4.1, Provisional ABI: 4.1)", Some(4)),
            ("OpenPMIx 5.0.1, repo rev: gitb", Some(5)),
            ("", None),
        ] {
            assert_eq!(major(version), expected, "{version}");
        }
    }
}
