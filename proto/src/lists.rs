//! The bounds on the lists of a request: the largest number of entries, and the lists that keep each entry
//! once.
//!
//! The entries are counted in the encoded request, before anything is decoded: an empty entry takes two bytes
//! on the wire and hundreds in memory. A list that selects (jobs, nodes, states, users …) keeps each entry
//! once, at its first position. Arguments, resource limits and the nodes of tasks stay as they are.

use std::any::Any;
use std::collections::HashSet;
use std::hash::Hash;

use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

use crate::convert::BadField;
use crate::v1;

/// Largest number of entries of a list that selects.
pub const MOST_NAMED: usize = 10_000;
/// Largest number of settings that one request changes.
const MOST_SETTINGS: usize = 256;
/// Largest number of nodes that are named one by one.
const MOST_NODES: usize = 65_536;
/// Largest number of arguments of a batch script.
const MOST_ARGUMENTS: usize = 131_072;
/// Largest number of resource limits of a submit host; Linux knows 16.
const MOST_LIMITS: usize = 64;
/// Largest number of components of a het job after the first.
const MOST_COMPONENTS: usize = 127;
/// Largest number of debug flags.
const MOST_FLAGS: usize = 64;
/// Largest number of lines in a change of accounts, and of settings on all lines of one slice of a dump.
const MOST_LINES: usize = 65_536;

/// The lists of a message, and its nested messages with lists.
#[derive(Debug)]
pub struct Shape {
    /// The lists.
    pub lists: &'static [List],
    /// The nested messages with lists, by field number. The field may be one of the lists.
    pub nested: &'static [(u32, &'static Shape)],
}

/// A repeated field.
#[derive(Debug)]
pub struct List {
    /// The field number.
    pub field: u32,
    /// The entries in the words of users, for refusals.
    pub what: &'static str,
    /// Largest number of entries in all messages of this kind within one request.
    pub most: usize,
    /// True for numbers, many of which may be packed into one field.
    pub packed: bool,
}

const fn list(field: u32, what: &'static str, most: usize) -> List {
    List { field, what, most, packed: false }
}

const fn flat(lists: &'static [List]) -> Shape {
    Shape { lists, nested: &[] }
}

static JOB_FILTER: Shape = flat(&[
    list(1, "job ids", MOST_NAMED),
    list(2, "users", MOST_NAMED),
    list(3, "partitions", MOST_NAMED),
    list(4, "states", MOST_NAMED),
    list(5, "names", MOST_NAMED),
    list(6, "accounts", MOST_NAMED),
    list(7, "QOS", MOST_NAMED),
    list(9, "reservations", MOST_NAMED),
    list(11, "wckeys", MOST_NAMED),
]);
static FILTERED: Shape = Shape { lists: &[], nested: &[(1, &JOB_FILTER)] };
static CANCEL_JOBS: Shape = Shape { lists: &[list(5, "steps", MOST_NAMED)], nested: &[(1, &JOB_FILTER)] };
static JOB_IDS: Shape = flat(&[list(1, "job ids", MOST_NAMED)]);
static WATCH_JOBS: Shape = flat(&[List { packed: true, ..list(1, "job ids", MOST_NAMED) }]);
static UPDATE_JOB: Shape = flat(&[list(1, "job ids", MOST_NAMED), list(2, "changes", MOST_SETTINGS)]);
static BATCH: Shape =
    flat(&[list(3, "arguments of the script", MOST_ARGUMENTS), list(11, "resource limits", MOST_LIMITS)]);
static JOB_SPEC: Shape =
    Shape { lists: &[list(91, "components", MOST_COMPONENTS)], nested: &[(70, &BATCH), (91, &JOB_SPEC)] };
static SUBMIT: Shape = Shape { lists: &[], nested: &[(1, &JOB_SPEC)] };
static LIST_NODES: Shape = flat(&[list(2, "partitions", MOST_NAMED), list(3, "states", MOST_NAMED)]);
static NAMES: Shape = flat(&[list(1, "names", MOST_NAMED)]);
static CREATE_STEP: Shape =
    flat(&[list(22, "--distribution", MOST_NODES), list(34, "components", MOST_COMPONENTS)]);
static ABANDON_STEP: Shape = flat(&[list(3, "nodes", MOST_NODES)]);
static SETTINGS_1: Shape = flat(&[list(1, "settings", MOST_SETTINGS)]);
static SETTINGS_2: Shape = flat(&[list(2, "settings", MOST_SETTINGS)]);
static SETTINGS_5: Shape = flat(&[list(5, "settings", MOST_SETTINGS)]);
static SET_DEBUG: Shape = flat(&[list(2, "debug flags", MOST_FLAGS), list(3, "debug flags", MOST_FLAGS)]);
static ACCOUNTING: Shape = flat(&[
    list(1, "job ids", MOST_NAMED),
    list(2, "users", MOST_NAMED),
    list(3, "partitions", MOST_NAMED),
    list(4, "states", MOST_NAMED),
    list(5, "names", MOST_NAMED),
    list(6, "accounts", MOST_NAMED),
    list(12, "QOS", MOST_NAMED),
]);
static SHOWN: Shape = flat(&[list(1, "lines that were shown", MOST_LINES)]);
static DUMP_LINE: Shape = flat(&[list(5, "settings", MOST_LINES)]);
static CHANGE_ACCOUNTS: Shape = Shape {
    lists: &[
        list(3, "names", MOST_NAMED),
        list(4, "conditions", MOST_SETTINGS),
        list(5, "settings", MOST_SETTINGS),
        list(6, "lines of a dump", MOST_NAMED),
    ],
    nested: &[(6, &DUMP_LINE), (8, &SHOWN)],
};
static LIST_ACCOUNTS: Shape = flat(&[list(2, "names", MOST_NAMED), list(3, "conditions", MOST_SETTINGS)]);
static ROWS: Shape = flat(&[list(1, "rows", MOST_NAMED)]);
static RUNS: Shape = flat(&[list(1, "runs", MOST_NAMED)]);

/// The shapes of the requests that have lists, by the names of their messages.
pub static SHAPES: [(&str, &Shape); 31] = [
    ("SubmitRequest", &SUBMIT),
    ("DefragmentRequest", &SUBMIT),
    ("CancelJobsRequest", &CANCEL_JOBS),
    ("UpdateJobRequest", &UPDATE_JOB),
    ("HoldJobsRequest", &JOB_IDS),
    ("ReleaseJobsRequest", &JOB_IDS),
    ("RequeueJobsRequest", &JOB_IDS),
    ("SuspendJobsRequest", &JOB_IDS),
    ("TopJobsRequest", &JOB_IDS),
    ("ListJobsRequest", &FILTERED),
    ("ListPrioritiesRequest", &FILTERED),
    ("ListStepsRequest", &FILTERED),
    ("ListNodesRequest", &LIST_NODES),
    ("ListPartitionsRequest", &NAMES),
    ("ListReservationsRequest", &NAMES),
    ("WatchJobsRequest", &WATCH_JOBS),
    ("WatchClusterRequest", &FILTERED),
    ("CreateStepRequest", &CREATE_STEP),
    ("AbandonStepRequest", &ABANDON_STEP),
    ("UpdatePartitionRequest", &SETTINGS_5),
    ("CreatePartitionRequest", &SETTINGS_2),
    ("CreateNodesRequest", &SETTINGS_2),
    ("CreateReservationRequest", &SETTINGS_1),
    ("UpdateReservationRequest", &SETTINGS_2),
    ("SetDebugRequest", &SET_DEBUG),
    ("ListAccountingRequest", &ACCOUNTING),
    ("ChangeAccountsRequest", &CHANGE_ACCOUNTS),
    ("ListAccountsRequest", &LIST_ACCOUNTS),
    ("FixRunawayJobsRequest", &RUNS),
    ("ListUsageRequest", &JOB_IDS),
    ("ImportHistoryRequest", &ROWS),
];

/// Returns the shape of a message; `None` for a message without bounded lists.
pub(crate) fn shape_of<T: 'static>() -> Option<&'static Shape> {
    let name = std::any::type_name::<T>().rsplit("::").next()?;
    SHAPES.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape)
}

/// Refuses an encoded message with a list that is too long. Malformed bytes are left to the decoder.
///
/// # Errors
/// Names the list, and its largest number of entries.
pub(crate) fn check(shape: &'static Shape, message: &[u8]) -> Result<(), BadField> {
    Count::default().message(shape, message, 0)
}

/// Largest depth of nested messages, as for the decoder.
const MOST_NESTED: usize = 100;

/// The number of entries of each list, by the address of its description.
#[derive(Default)]
struct Count(Vec<(&'static List, usize)>);

impl Count {
    fn message(&mut self, shape: &'static Shape, mut rest: &[u8], depth: usize) -> Result<(), BadField> {
        while rest.has_remaining() && depth < MOST_NESTED {
            let Ok((field, wire)) = decode_key(&mut rest) else { return Ok(()) };
            let Some(value) = value(wire, &mut rest) else { return Ok(()) };
            if let Some(list) = shape.lists.iter().find(|list| list.field == field) {
                self.add(list, entries(list, wire, value))?;
            }
            let nested = shape.nested.iter().find(|(known, _)| *known == field);
            if let Some((_, shape)) = nested.filter(|_| wire == WireType::LengthDelimited) {
                self.message(shape, value, depth + 1)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, list: &'static List, more: usize) -> Result<(), BadField> {
        let at = self.0.iter().position(|(known, _)| std::ptr::eq(*known, list)).unwrap_or_else(|| {
            self.0.push((list, 0));
            self.0.len() - 1
        });
        let count = &mut self.0[at].1;
        *count += more;
        if *count > list.most {
            let problem = format!("one request names {} at most; ask for some at a time", list.most);
            return Err(BadField::new(list.what, problem));
        }
        Ok(())
    }
}

/// Returns the bytes of a field's value; `None` if they are incomplete.
fn value<'a>(wire: WireType, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = match wire {
        WireType::Varint => rest.iter().position(|byte| *byte < 0x80)? + 1,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (value, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(value)
}

/// Returns the number of list entries in one field: each packed number ends with a byte below 128.
fn entries(list: &List, wire: WireType, value: &[u8]) -> usize {
    match (list.packed, wire) {
        (true, WireType::LengthDelimited) => value.iter().filter(|byte| **byte < 0x80).count(),
        (true | false, _) => 1,
    }
}

/// Removes repeated entries from the lists that select.
pub(crate) fn keep_each_once(request: &mut dyn Any) {
    macro_rules! keep {
        ($($message:ident: $($list:ident),+;)*) => {$(
            if let Some(request) = request.downcast_mut::<v1::$message>() {
                $(each_once(&mut request.$list);)+
                return;
            }
        )*};
    }
    macro_rules! keep_in_filter {
        ($($message:ident),+) => {$(
            if let Some(request) = request.downcast_mut::<v1::$message>() {
                request.filter.iter_mut().for_each(filter_once);
                return;
            }
        )+};
    }
    if let Some(request) = request.downcast_mut::<v1::CancelJobsRequest>() {
        each_once(&mut request.steps);
        request.filter.iter_mut().for_each(filter_once);
        return;
    }
    keep_in_filter!(ListJobsRequest, ListPrioritiesRequest, ListStepsRequest, WatchClusterRequest);
    keep! {
        UpdateJobRequest: job_ids;
        HoldJobsRequest: job_ids;
        ReleaseJobsRequest: job_ids;
        RequeueJobsRequest: job_ids;
        SuspendJobsRequest: job_ids;
        TopJobsRequest: job_ids;
        WatchJobsRequest: job_ids;
        ListUsageRequest: job_ids;
        ListNodesRequest: partitions, states;
        ListPartitionsRequest: names;
        ListReservationsRequest: names;
        AbandonStepRequest: nodes;
        SetDebugRequest: flags_on, flags_off;
        FixRunawayJobsRequest: runs;
        ListAccountingRequest: job_ids, users, partitions, states, names, accounts, qos;
    }
}

fn filter_once(filter: &mut v1::JobFilter) {
    for list in [
        &mut filter.job_ids,
        &mut filter.users,
        &mut filter.partitions,
        &mut filter.states,
        &mut filter.names,
        &mut filter.accounts,
        &mut filter.qos,
        &mut filter.reservations,
        &mut filter.wckeys,
    ] {
        each_once(list);
    }
}

fn each_once<T: Hash + Eq>(list: &mut Vec<T>) {
    if list.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(list.len());
    let new: Vec<bool> = list.iter().map(|entry| seen.insert(entry)).collect();
    let mut new = new.into_iter();
    list.retain(|_| new.next() == Some(true));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FileDescriptorSet};

    use super::*;

    type Messages = BTreeMap<String, DescriptorProto>;

    /// Returns all messages by their full names, and the requests of the controller.
    fn described() -> (Messages, Vec<String>) {
        let files = FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap().file;
        let mut messages = Messages::new();
        for message in files.iter().flat_map(|file| &file.message_type) {
            enter(".spur.v1", message, &mut messages);
        }
        let services = files.into_iter().flat_map(|file| file.service);
        let controller = services.into_iter().find(|service| service.name() == "Controller").unwrap();
        (messages, controller.method.iter().map(|method| method.input_type().to_owned()).collect())
    }

    fn enter(parent: &str, message: &DescriptorProto, messages: &mut Messages) {
        let name = format!("{parent}.{}", message.name());
        for nested in &message.nested_type {
            enter(&name, nested, messages);
        }
        messages.insert(name, message.clone());
    }

    /// True if a message has a list, also in nested messages.
    fn has_lists(name: &str, messages: &Messages, seen: &mut Vec<String>) -> bool {
        if seen.iter().any(|other| other == name) {
            return false;
        }
        seen.push(name.to_owned());
        messages[name].field.iter().any(|field| {
            field.label() == Label::Repeated
                || (field.r#type() == Type::Message && has_lists(field.type_name(), messages, seen))
        })
    }

    /// Adds to `wrong` the differences between a shape and its message.
    fn compare(
        name: &str,
        shape: &Shape,
        messages: &Messages,
        seen: &mut Vec<String>,
        wrong: &mut Vec<String>,
    ) {
        if seen.iter().any(|other| other == name) {
            return;
        }
        seen.push(name.to_owned());
        let message = &messages[name];
        for list in shape.lists {
            let field = message.field.iter().find(|field| field.number().cast_unsigned() == list.field);
            if field.is_none_or(|field| field.label() != Label::Repeated) {
                wrong.push(format!("{name} has no list {}", list.field));
            }
        }
        for field in &message.field {
            let number = field.number().cast_unsigned();
            let is_number = !matches!(field.r#type(), Type::String | Type::Bytes | Type::Message);
            if field.label() == Label::Repeated {
                match shape.lists.iter().find(|list| list.field == number) {
                    None => wrong.push(format!("{name}.{} has no bound", field.name())),
                    Some(list) if list.packed != is_number => wrong.push(format!("{name}.{}", field.name())),
                    Some(_) => {}
                }
            }
            if field.r#type() == Type::Message && has_lists(field.type_name(), messages, &mut Vec::new()) {
                match shape.nested.iter().find(|(nested, _)| *nested == number) {
                    Some((_, nested)) => compare(field.type_name(), nested, messages, seen, wrong),
                    None => wrong.push(format!("the lists in {name}.{} have no bounds", field.name())),
                }
            }
        }
    }

    #[test]
    fn every_list_of_every_request_is_bounded() {
        let (messages, requests) = described();
        assert!(requests.len() > 40, "{requests:?}");
        let mut wrong = Vec::new();
        for request in &requests {
            let shape = SHAPES.iter().find(|(name, _)| request.ends_with(&format!(".{name}")));
            match shape {
                Some((_, shape)) => compare(request, shape, &messages, &mut Vec::new(), &mut wrong),
                None if has_lists(request, &messages, &mut Vec::new()) => {
                    wrong.push(format!("{request} has lists without bounds"));
                }
                None => {}
            }
        }
        assert_eq!(wrong, [""; 0]);
        let unknown = SHAPES.iter().filter(|(name, _)| !messages.contains_key(&format!(".spur.v1.{name}")));
        assert_eq!(unknown.count(), 0);
    }

    /// Returns the refusal of a request, if it is refused.
    fn refused<T: Message + 'static>(request: &T) -> Option<String> {
        let shape = shape_of::<T>().expect("the request has lists");
        check(shape, &request.encode_to_vec()).err().map(|bad| bad.to_string())
    }

    #[test]
    fn one_entry_too_many_is_refused_before_it_is_decoded() {
        let names = |count: usize| vec![String::new(); count];
        let filter = |count| {
            let filter = Some(v1::JobFilter { wckeys: names(count), ..v1::JobFilter::default() });
            v1::ListStepsRequest { filter }
        };
        let watch =
            |count: usize| v1::WatchJobsRequest { job_ids: (0..).map(|id| id * 1000).take(count).collect() };
        let het = |count| {
            let job = Some(v1::JobSpec {
                components: vec![v1::JobSpec::default(); count],
                ..v1::JobSpec::default()
            });
            v1::SubmitRequest { job, ..v1::SubmitRequest::default() }
        };
        let update = |count: usize| {
            let changes = (0..count).map(|key| (key.to_string(), String::new())).collect();
            v1::UpdateJobRequest { changes, ..v1::UpdateJobRequest::default() }
        };
        assert_eq!(
            [refused(&filter(10_000)), refused(&watch(10_000)), refused(&het(127))],
            [None, None, None]
        );
        assert_eq!(refused(&update(256)), None);
        let message = "one request names 10000 at most; ask for some at a time";
        assert_eq!(refused(&filter(10_001)), Some(format!("wckeys: {message}")));
        assert_eq!(refused(&watch(10_001)), Some(format!("job ids: {message}")));
        assert!(refused(&het(128)).unwrap().starts_with("components: one request names 127"));
        assert!(refused(&update(257)).unwrap().starts_with("changes: one request names 256"));
        // Components of components count with them.
        let nested = v1::JobSpec { components: vec![v1::JobSpec::default(); 64], ..v1::JobSpec::default() };
        let job = Some(v1::JobSpec { components: vec![nested; 2], ..v1::JobSpec::default() });
        assert!(refused(&v1::SubmitRequest { job, ..v1::SubmitRequest::default() }).is_some());
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_decoder() {
        for bytes in [&[0x0a][..], &[0x0a, 0xff, 0xff], &[0x0b], &[0x09, 1, 2], &[0xff; 30], &[0x08]] {
            check(&JOB_IDS, bytes).unwrap();
            check(&SUBMIT, bytes).unwrap();
        }
    }

    #[test]
    fn a_list_that_selects_keeps_each_entry_where_it_comes_first() {
        let twice = || ["b", "a", "b", "c", "a"].map(str::to_owned).to_vec();
        let once = ["b", "a", "c"].map(str::to_owned);
        let mut nodes =
            v1::ListNodesRequest { partitions: twice(), states: twice(), ..v1::ListNodesRequest::default() };
        keep_each_once(&mut nodes);
        assert_eq!((&nodes.partitions[..], &nodes.states[..]), (&once[..], &once[..]));
        let filter = v1::JobFilter { job_ids: twice(), reservations: twice(), ..v1::JobFilter::default() };
        let mut cancel = v1::CancelJobsRequest {
            filter: Some(filter),
            steps: twice(),
            ..v1::CancelJobsRequest::default()
        };
        keep_each_once(&mut cancel);
        let filter = cancel.filter.unwrap();
        assert_eq!(
            (&filter.job_ids[..], &filter.reservations[..], &cancel.steps[..]),
            (&once[..], &once[..], &once[..])
        );
        let mut tasks = v1::CreateStepRequest { hosts: twice(), ..v1::CreateStepRequest::default() };
        keep_each_once(&mut tasks);
        assert_eq!(tasks.hosts, twice());
    }
}
