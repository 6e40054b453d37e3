//! Job requests, from the wire's text to the core's types.

use std::sync::Arc;

use bytes::Bytes;
use memchr::{memchr, memchr_iter};
use spur_core::controller::command::Submission;
use spur_core::id::{BlobId, JobId};
use spur_core::model::caller::Owner;
use spur_core::model::change::licenses;
use spur_core::model::job::{Batch, Client, CoreAsk, Extra, FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::text::dependency::Dependency;
use spur_core::text::features::FeatureExpr;
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::hostlist::MAX_WRITTEN;
use spur_core::text::length;
use spur_core::text::memory;
use spur_core::text::time::{Time, TimeLimit};

use super::{BadField, boxed, cut, fits, read, read_if_set};
use crate::channel::{MAX_ENVIRONMENT, MAX_SCRIPT};
use crate::v1;

/// Largest number of resource limits of a submit host; Linux knows 16.
const MAX_RESOURCE_LIMITS: usize = 64;

/// Script and environment of a batch job, which are kept as blobs outside memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The script.
    pub script: Bytes,
    /// `NAME=VALUE` entries, each followed by NUL.
    pub environment: Bytes,
}

/// Parses a request. Only batch jobs have a payload; the controller numbers its blob.
///
/// # Errors
/// Names the first field that cannot be read.
pub fn submission(mut wire: v1::JobSpec) -> Result<(Submission, Option<Payload>), BadField> {
    let components = std::mem::take(&mut wire.components);
    let (mut first, payload) = one(wire)?;
    let (mut named, mut awaited) = (names(&first), awaited_by(&first));
    for (offset, wire) in (1_u32..).zip(components) {
        if wire.batch.is_some() || !wire.components.is_empty() {
            let problem = format!("component {offset} has a script or components of its own");
            return Err(BadField::new("components", problem));
        }
        let (component, _) = one(wire)?;
        named += names(&component);
        if named > MAX_WRITTEN {
            let problem =
                format!("they name more than {MAX_WRITTEN} nodes together, up to component {offset}");
            return Err(BadField::new("components", problem));
        }
        awaited += awaited_by(&component);
        if awaited > Dependency::<JobId>::MOST_JOBS {
            let most = Dependency::<JobId>::MOST_JOBS;
            let problem = format!("they depend on more than {most} jobs together, up to component {offset}");
            return Err(BadField::new("components", problem));
        }
        first.rest.push(component);
    }
    Ok((first, payload))
}

/// Returns the number of jobs that `--dependency` of a component names.
fn awaited_by(component: &Submission) -> usize {
    let terms = component.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
    terms.map(|term| term.jobs.len().max(1)).sum()
}

/// Returns the number of nodes that `--nodelist` and `--exclude` of a component name.
fn names(component: &Submission) -> usize {
    let Shape { nodelist, exclude, .. } = &component.spec.shape;
    [nodelist, exclude].into_iter().flatten().map(|list| list.written()).sum()
}

/// Parses one component.
fn one(wire: v1::JobSpec) -> Result<(Submission, Option<Payload>), BadField> {
    lengths(&wire)?;
    let shape = shape(&wire)?;
    let fabric = fabric(&wire)?;
    let extra = extra(&wire)?;
    if wire.batch.is_some() && wire.client.is_some() {
        return Err(BadField::new(
            "client",
            "a job has a batch script, or a command that holds it, not both",
        ));
    }
    let (batch, payload) = match wire.batch {
        Some(batch) => batch_of(batch).map(|(batch, payload)| (Some(Box::new(batch)), Some(payload)))?,
        None => (None, None),
    };
    let time_limit = match (wire.unlimited_time, wire.time_limit) {
        (true, None) => Some(TimeLimit::Unlimited),
        (true, Some(_)) => return Err(BadField::new("--time", "both a limit and UNLIMITED were given")),
        (false, seconds) => limit("--time", seconds)?,
    };
    if wire.name.contains(char::is_control) {
        return Err(BadField::new(
            "--job-name",
            format!("{:?} has a line break or the like in it", wire.name),
        ));
    }
    let name = match (wire.name.as_str(), &batch) {
        ("", Some(_)) => "sbatch",
        ("", None) => "interactive",
        (name, _) => name,
    };
    let spec = JobSpec {
        name: name.into(),
        owner: Arc::new(Owner { uid: 0, gid: 0, user: "".into(), group: "".into() }),
        // As in Slurm, names of accounts are in lower case.
        account: text(&wire.account.to_lowercase()),
        qos: text(&wire.qos),
        partitions: list(&wire.partition),
        shape,
        fabric,
        time_limit: TimeLimit::Unlimited,
        time_min: limit("--time-min", wire.time_min)?,
        begin: wire.begin.map(Time),
        deadline: wire.deadline.map(Time),
        hold: wire.hold,
        priority: wire.priority,
        nice: wire.nice,
        dependency: dependency(&wire.dependency)?,
        array: read_if_set("--array", &wire.array)?.map(Box::new),
        requeue: false,
        batch,
        client: wire.client.map(client).transpose()?,
        extra,
        het: None,
    };
    Ok((Submission { spec, time_limit, requeue: wire.requeue, rest: Vec::new() }, payload))
}

/// Refuses excessively long texts, which would be held in memory, journalled, and sent in lists of jobs.
fn lengths(wire: &v1::JobSpec) -> Result<(), BadField> {
    for (field, text, most) in [
        ("--job-name", &wire.name, length::TEXT),
        ("--account", &wire.account, length::TEXT),
        ("--qos", &wire.qos, length::TEXT),
        ("--partition", &wire.partition, length::TEXT),
        ("--nodes", &wire.nodes, length::TEXT),
        ("--gres", &wire.gres, length::TEXT),
        ("--gpus", &wire.gpus, length::TEXT),
        ("--gpus-per-node", &wire.gpus_per_node, length::TEXT),
        ("--gpus-per-task", &wire.gpus_per_task, length::TEXT),
        ("--constraint", &wire.features, length::TEXT),
        ("--nodelist", &wire.nodelist, length::NODES),
        ("--exclude", &wire.exclude, length::NODES),
        ("--topology", &wire.topology, length::TEXT),
        ("--gather", &wire.gather, length::TEXT),
        ("--switches", &wire.switches, length::TEXT),
        ("--placement", &wire.placement, length::TEXT),
        ("--prefer", &wire.prefer, length::TEXT),
        ("--network", &wire.network, length::TEXT),
        ("--het-gather", &wire.het_gather, length::TEXT),
        ("--dependency", &wire.dependency, length::DEPENDENCY),
        ("--array", &wire.array, length::ARRAY),
        ("--comment", &wire.comment, length::TEXT),
        ("--wckey", &wire.wckey, length::TEXT),
        ("--extra", &wire.extra, length::TEXT),
        ("--licenses", &wire.licenses, length::TEXT),
        ("--reservation", &wire.reservation, length::TEXT),
        ("--signal", &wire.signal, length::TEXT),
        ("the name of the submit host", &wire.submit_host, length::TEXT),
        ("--mail-type", &wire.mail_type, length::TEXT),
        ("--mail-user", &wire.mail_user, length::TEXT),
    ] {
        fits(field, text, most)?;
    }
    wire.batch.as_ref().map_or(Ok(()), batch_lengths)
}

fn batch_lengths(batch: &v1::Batch) -> Result<(), BadField> {
    for (field, path) in [
        ("batch script", &batch.command),
        ("--chdir", &batch.work_dir),
        ("--input", &batch.stdin),
        ("--output", &batch.stdout),
        ("--error", &batch.stderr),
    ] {
        fits(field, path, length::PATH)?;
    }
    let arguments: usize = batch.args.iter().map(|argument| argument.len() + 1).sum();
    if arguments > length::ARGUMENTS {
        let most = length::ARGUMENTS;
        let problem =
            format!("{arguments} bytes are too many; at most {most} can be given, the rest in a file");
        return Err(BadField::new("arguments of the script", problem));
    }
    if batch.limits.len() > MAX_RESOURCE_LIMITS {
        let problem =
            format!("there are {} of them; at most {MAX_RESOURCE_LIMITS} can be given", batch.limits.len());
        return Err(BadField::new("resource limits", problem));
    }
    batch.limits.iter().try_for_each(|limit| fits("resource limits", &limit.name, length::TEXT))
}

fn text(written: &str) -> Option<Arc<str>> {
    (!written.is_empty()).then(|| written.into())
}

fn list(written: &str) -> Box<[Arc<str>]> {
    written.split(',').filter(|name| !name.is_empty()).map(Arc::from).collect()
}

fn shape(wire: &v1::JobSpec) -> Result<Shape, BadField> {
    for (field, amount) in [
        ("--mem", wire.memory_per_node_mb),
        ("--mem-per-cpu", wire.memory_per_cpu_mb),
        ("--mem-per-gpu", wire.cores.as_ref().and_then(|cores| cores.memory_per_gpu_mb)),
        ("--tmp", Some(wire.tmp_disk_mb)),
    ] {
        memory::check(amount.unwrap_or_default()).map_err(|problem| BadField::new(field, problem))?;
    }
    let memory = match (wire.memory_per_node_mb, wire.memory_per_cpu_mb) {
        (Some(_), Some(_)) => {
            return Err(BadField::new("--mem", "it cannot be given together with --mem-per-cpu"));
        }
        (Some(mb), None) => Some(MemoryNeed::PerNode(mb)),
        (None, mb) => mb.map(MemoryNeed::PerCpu),
    };
    for (field, number) in [
        ("--ntasks", wire.tasks),
        ("--ntasks", wire.overcommit_tasks),
        ("--ntasks-per-node", wire.tasks_per_node),
        ("--cpus-per-task", wire.cpus_per_task),
    ] {
        if number == Some(0) {
            return Err(BadField::new(field, "must be at least 1"));
        }
    }
    let cores = wire.cores.as_ref().map(|cores| CoreAsk {
        sockets_per_node: cores.sockets_per_node,
        cores_per_socket: cores.cores_per_socket,
        threads_per_core: cores.threads_per_core,
        tasks_per_core: cores.tasks_per_core,
        tasks_per_socket: cores.tasks_per_socket,
        cpus_per_gpu: cores.cpus_per_gpu,
        memory_per_gpu: cores.memory_per_gpu_mb,
    });
    let mut gres = gres_list("--gres", &wire.gres)?;
    // The same GPUs may be named by both options.
    let named = |own: &GresSpec| gres.iter().any(|gres| gres.may_be(own));
    let mut others = gpus("--gpus-per-node", &wire.gpus_per_node)?;
    others.retain(|own| !named(own));
    gres.extend(others);
    Ok(Shape {
        nodes: read_if_set("--nodes", &wire.nodes)?,
        tasks: wire.tasks,
        tasks_per_node: wire.tasks_per_node,
        cpus_per_task: wire.cpus_per_task,
        overcommit_tasks: wire.overcommit_tasks,
        use_min_nodes: wire.use_min_nodes,
        memory,
        tmp_disk_mb: wire.tmp_disk_mb,
        min_cpus: wire.min_cpus,
        gres,
        gpus: gpus("--gpus", &wire.gpus)?,
        gpus_per_task: gpus("--gpus-per-task", &wire.gpus_per_task)?,
        features: read_if_set("--constraint", &wire.features)?.map(Box::new),
        nodelist: read_if_set("--nodelist", &wire.nodelist)?.map(Box::new),
        exclude: read_if_set("--exclude", &wire.exclude)?.map(Box::new),
        sharing: match v1::Sharing::try_from(wire.sharing) {
            Ok(v1::Sharing::Unspecified) => Sharing::Partition,
            Ok(v1::Sharing::Shared) => Sharing::Shared,
            Ok(v1::Sharing::Exclusive) => Sharing::Exclusive,
            Ok(v1::Sharing::Topo) => Sharing::Topo,
            Err(_) => return Err(BadField::new("--exclusive", "this release does not know that kind")),
        },
        cores: cores.filter(|cores| *cores != CoreAsk::default()).map(Box::new),
    })
}

fn gres_list(field: &'static str, written: &str) -> Result<Vec<GresSpec>, BadField> {
    Ok(read_if_set::<GresList>(field, written)?.unwrap_or_default().0)
}

fn gpus(field: &'static str, written: &str) -> Result<Vec<GresSpec>, BadField> {
    if written.is_empty() {
        return Ok(Vec::new());
    }
    let list = GresList::parse_gpus(written).map_err(|error| BadField::new(field, error.to_string()))?;
    Ok(list.0)
}

fn wish(written: &str) -> Result<Option<FeatureExpr>, BadField> {
    let wish = (!written.is_empty()).then(|| FeatureExpr::wish(written)).transpose();
    wish.map_err(|error| BadField::new("--prefer", error.to_string()))
}

/// Parses the fabric options; `None` if none is used.
fn fabric(wire: &v1::JobSpec) -> Result<Option<Box<FabricAsk>>, BadField> {
    if wire.segment == Some(0) {
        return Err(BadField::new("--segment", "must be at least 1"));
    }
    let ask = FabricAsk {
        topology: text(&wire.topology),
        gather: read_if_set("--gather", &wire.gather)?,
        switches: read_if_set("--switches", &wire.switches)?,
        segment: wire.segment,
        spread_segments: wire.spread_segments,
        consolidate_segments: wire.consolidate_segments,
        contiguous: wire.contiguous,
        placement: read_if_set("--placement", &wire.placement)?,
        prefer: wish(&wire.prefer)?.map(Arc::new),
        network: read_if_set("--network", &wire.network)?,
        het_gather: read_if_set("--het-gather", &wire.het_gather)?,
        gather_with: wire.gather_with.map(JobId),
    };
    Ok((ask != FabricAsk::default()).then(|| Box::new(ask)))
}

/// Refuses a number of seconds that Slurm, with minutes in 32 bits, could not hold.
fn limit(field: &'static str, seconds: Option<u64>) -> Result<Option<TimeLimit>, BadField> {
    let most = u64::from(u32::MAX) * 60;
    match seconds {
        Some(seconds) if seconds > most => {
            Err(BadField::new(field, format!("{seconds} seconds are too many; ask ≤ {most}, or UNLIMITED")))
        }
        seconds => Ok(seconds.map(TimeLimit::Seconds)),
    }
}

/// Parses the rare options; `None` if none is used. The submit host counts as one.
fn extra(wire: &v1::JobSpec) -> Result<Option<Box<Extra>>, BadField> {
    let mail = !wire.mail_type.is_empty() || !wire.mail_user.is_empty();
    let extra = Extra {
        comment: boxed(&wire.comment),
        wckey: boxed(&wire.wckey),
        text: boxed(&wire.extra),
        // Only a later update sets it.
        admin_comment: None,
        licenses: licenses(&wire.licenses).map_err(|problem| BadField::new("--licenses", problem))?,
        reservation: boxed(&wire.reservation),
        no_kill: wire.no_kill,
        no_preempt: wire.no_preempt,
        kill_on_invalid_dep: wire.kill_on_invalid_dep,
        signal: read_if_set("--signal", &wire.signal)?,
        submit_host: wire.submit_host.as_str().into(),
        mail: mail.then(|| (wire.mail_type.as_str().into(), wire.mail_user.as_str().into())),
        submit_line: boxed(cut(&wire.submit_line, length::COMMAND_LINE)),
        gone: Vec::new(),
        reboot: wire.reboot,
        gres_anywhere: wire.gres_anywhere,
        // Only an operator's update of the job exempts it.
        exempt: Vec::new(),
    };
    Ok((extra != Extra::default()).then(|| Box::new(extra)))
}

fn dependency(written: &str) -> Result<Option<Box<Dependency<JobId>>>, BadField> {
    const FIELD: &str = "--dependency";
    let Some(parsed) = read_if_set::<Dependency>(FIELD, written)? else { return Ok(None) };
    let parsed = parsed.bounded().map_err(|problem| BadField::new(FIELD, problem))?;
    let numbered = parsed.map_jobs(|job| read::<JobId>(FIELD, &job).map_err(|_| job));
    let numbered =
        numbered.map_err(|job| BadField::new(FIELD, format!("`{job}` is not the number of a job")))?;
    Ok(Some(Box::new(numbered)))
}

fn client(wire: v1::Client) -> Result<Box<Client>, BadField> {
    let v1::Client { command, work_dir, no_shell } = wire;
    for (field, word) in [("command", &command), ("--chdir", &work_dir)] {
        fits(field, word, length::PATH)?;
        if word.contains(char::is_control) {
            return Err(BadField::new(field, format!("{word:?} has a line break or the like in it")));
        }
    }
    Ok(Box::new(Client { command: command.into(), work_dir: work_dir.into(), no_shell }))
}

fn batch_of(wire: v1::Batch) -> Result<(Batch, Payload), BadField> {
    let v1::Batch {
        script,
        environment,
        args,
        command,
        work_dir,
        stdin,
        stdout,
        stderr,
        append,
        umask,
        limits,
        sampling_seconds,
        oom_kill_step,
        limits_named,
    } = wire;
    check_script(&script)?;
    check_environment(&environment)?;
    if !work_dir.starts_with('/') {
        return Err(BadField::new("--chdir", format!("`{work_dir}` is not an absolute path")));
    }
    let paths = [("--chdir", &work_dir), ("--input", &stdin), ("--output", &stdout), ("--error", &stderr)]
        .into_iter();
    let words = paths.chain(args.iter().map(|arg| ("arguments of the script", arg)));
    for (field, word) in words.chain([("batch script", &command)]) {
        if word.contains('\0') {
            return Err(BadField::new(field, format!("{word:?} has a NUL character in it")));
        }
    }
    let batch = Batch {
        script: BlobId::default(),
        environment: BlobId::default(),
        bytes: u32::try_from(script.len() + environment.len()).unwrap_or(u32::MAX),
        args: args.into_iter().map(String::into_boxed_str).collect(),
        command: command.into(),
        work_dir: work_dir.into(),
        stdin: boxed(&stdin),
        stdout: boxed(&stdout),
        stderr: boxed(&stderr),
        append,
        umask,
        limits: limits.into_iter().map(|limit| (limit.name.into(), limit.soft)).collect(),
        sampling_seconds,
        oom_kill_step,
        limits_named,
    };
    Ok((batch, Payload { script, environment }))
}

fn check_script(script: &[u8]) -> Result<(), BadField> {
    let wrong = |why: String| Err(BadField::new("batch script", why));
    match script {
        [] => wrong("it is empty; begin it with #! and the shell to run it".to_owned()),
        _ if script.len() > MAX_SCRIPT => {
            wrong(format!("{} bytes are too many; at most {MAX_SCRIPT} can be kept", script.len()))
        }
        _ if !script.starts_with(b"#!") => {
            wrong("it does not begin with #! and the path of an interpreter, such as #!/bin/sh".to_owned())
        }
        _ if script.contains(&0) => wrong("it has a NUL character in it, which no script may".to_owned()),
        _ => Ok(()),
    }
}

/// Checks an environment: `NAME=VALUE` entries, each followed by NUL.
fn check_environment(environment: &[u8]) -> Result<(), BadField> {
    let wrong = |why: String| Err(BadField::new("--export", why));
    if environment.len() > MAX_ENVIRONMENT {
        return wrong(format!(
            "an environment of {} bytes is too large (at most {MAX_ENVIRONMENT}); export less of it",
            environment.len()
        ));
    }
    let Some((last, _)) = environment.split_last() else { return Ok(()) };
    if *last != 0 {
        return wrong("the environment does not end with a NUL character: it was cut off".to_owned());
    }
    let mut begin = 0;
    for end in memchr_iter(0, environment) {
        let variable = &environment[begin..end];
        if memchr(b'=', variable).is_none_or(|name| name == 0) {
            return wrong(format!("`{}` is not NAME=VALUE", variable.escape_ascii()));
        }
        begin = end + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> v1::Batch {
        v1::Batch { script: "#!/bin/sh\n".into(), work_dir: "/home/alice".into(), ..v1::Batch::default() }
    }

    #[test]
    fn what_is_not_said_is_left_open() {
        let (submission, payload) = submission(v1::JobSpec::default()).unwrap();
        let spec = submission.spec;
        assert_eq!((&*spec.name, spec.partitions.len()), ("interactive", 0));
        assert_eq!((submission.time_limit, submission.requeue), (None, None));
        assert_eq!((spec.fabric, spec.extra, payload), (None, None, None));
        assert_eq!(spec.shape, Shape::default());
    }

    #[test]
    fn every_language_is_parsed() {
        let wire = v1::JobSpec {
            name: "cfd".into(),
            partition: "a,b".into(),
            nodes: "4-8".into(),
            gres: "gpu:mi300x:4".into(),
            gpus_per_task: "2".into(),
            features: "ib&fast".into(),
            nodelist: "n[1-4]".into(),
            gather: "must:spine,prefer:leaf".into(),
            switches: "1@30".into(),
            unlimited_time: true,
            dependency: "afterok:7:8,singleton".into(),
            licenses: "matlab:2,ansys".into(),
            signal: "B:USR1@120".into(),
            memory_per_cpu_mb: Some(100),
            batch: Some(batch()),
            ..v1::JobSpec::default()
        };
        let (submission, payload) = submission(wire).unwrap();
        let spec = submission.spec;
        assert_eq!(submission.time_limit, Some(TimeLimit::Unlimited));
        assert_eq!(spec.partitions.len(), 2);
        assert_eq!(spec.shape.nodes.as_ref().map(ToString::to_string).as_deref(), Some("4-8"));
        assert_eq!(spec.shape.gres[0].count, 4);
        assert_eq!(spec.shape.memory, Some(MemoryNeed::PerCpu(100)));
        assert_eq!(spec.fabric.unwrap().switches.unwrap().count, 1);
        assert_eq!(spec.dependency.unwrap().terms[0].jobs[1].job, JobId(8));
        let extra = spec.extra.unwrap();
        assert_eq!(extra.licenses, [("matlab".into(), 2), ("ansys".into(), 1)]);
        assert_eq!(payload.unwrap().script, "#!/bin/sh\n");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        type Case = (&'static str, fn(&mut v1::JobSpec));
        let cases: [Case; 36] = [
            ("--mem", |wire| wire.memory_per_node_mb = Some(u64::MAX)),
            ("--mem", |wire| wire.memory_per_node_mb = Some((1 << 40) + 1)),
            ("--mem-per-cpu", |wire| wire.memory_per_cpu_mb = Some(u64::MAX)),
            ("--tmp", |wire| wire.tmp_disk_mb = u64::MAX),
            ("--mem-per-gpu", |wire| {
                let cores = v1::CoreAsk { memory_per_gpu_mb: Some(u64::MAX), ..v1::CoreAsk::default() };
                wire.cores = Some(cores);
            }),
            ("components", |wire| {
                let dependency = format!("afterok{}", ":1".repeat(2050));
                let part = v1::JobSpec { dependency, ..v1::JobSpec::default() };
                wire.components = vec![part; 2];
            }),
            ("--gpus", |wire| wire.gpus = "18446744073709551615".into()),
            ("--job-name", |wire| wire.name = "a\nb".into()),
            ("--comment", |wire| wire.comment = "x".repeat(1025)),
            ("--licenses", |wire| wire.licenses = "x,".repeat(600)),
            ("--nodelist", |wire| wire.nodelist = "n1,".repeat(30_000)),
            ("--nodelist", |wire| wire.nodelist = "n[0-65536]".into()),
            ("--exclude", |wire| wire.exclude = "n[1-60000]r1,switch{s[1-60000]}".into()),
            ("components", |wire| {
                let part = v1::JobSpec { nodelist: "n[1-10000]".into(), ..v1::JobSpec::default() };
                wire.components = vec![part; 7];
            }),
            ("--dependency", |wire| wire.dependency = format!("afterok{}", ":1".repeat(70_000))),
            ("--output", |wire| wire.batch = Some(v1::Batch { stdout: "x".repeat(4097), ..batch() })),
            ("arguments of the script", |wire| {
                wire.batch = Some(v1::Batch { args: vec![String::new(); 140_000], ..batch() });
            }),
            ("--nodes", |wire| wire.nodes = "8-4".into()),
            ("--ntasks", |wire| wire.tasks = Some(0)),
            ("--mem", |wire| (wire.memory_per_node_mb, wire.memory_per_cpu_mb) = (Some(1), Some(1))),
            ("--gres", |wire| wire.gres = "a:b:c:d".into()),
            ("--gather", |wire| wire.gather = "spine".into()),
            ("--segment", |wire| wire.segment = Some(0)),
            ("--dependency", |wire| wire.dependency = "afterok:x".into()),
            ("--dependency", |wire| wire.dependency = format!("afterok{}", ":1".repeat(4097))),
            ("--licenses", |wire| wire.licenses = "matlab:0".into()),
            ("--time", |wire| (wire.time_limit, wire.unlimited_time) = (Some(60), true)),
            ("--time", |wire| wire.time_limit = Some(u64::MAX)),
            ("--time-min", |wire| wire.time_min = Some(u64::MAX)),
            ("--chdir", |wire| wire.batch = Some(v1::Batch { work_dir: "x".into(), ..batch() })),
            ("batch script", |wire| wire.batch = Some(v1::Batch { script: Bytes::new(), ..batch() })),
            ("batch script", |wire| wire.batch = Some(v1::Batch { script: "true\n".into(), ..batch() })),
            ("--export", |wire| wire.batch = Some(v1::Batch { environment: "A=1".into(), ..batch() })),
            ("--export", |wire| wire.batch = Some(v1::Batch { environment: "=1\0".into(), ..batch() })),
            ("--output", |wire| wire.batch = Some(v1::Batch { stdout: "a\0b".into(), ..batch() })),
            ("arguments of the script", |wire| {
                wire.batch = Some(v1::Batch { args: vec!["a\0b".into()], ..batch() });
            }),
        ];
        for (field, spoil) in cases {
            let mut wire = v1::JobSpec::default();
            spoil(&mut wire);
            let error = submission(wire).unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }
}
