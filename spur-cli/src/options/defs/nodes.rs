//! Options for the choice of nodes and their places in the fabric.
//!
//! tidy: table

use spur_core::text::features::FeatureExpr;
use spur_core::text::gather::{Gather, HetGather, NetworkNeed, Placement, Switches};
use spur_core::text::hostlist::HostExpr;
use spur_core::text::time::TimeLimit;
use spur_proto::v1::Sharing;

use super::super::values::{count, parsed, parsed_or_none, text};
use super::{Def, JOB, SALLOC, SBATCH, SRUN};

pub(super) const OPTIONS: &[Def] = &[
    Def::value("constraint", Some('C'), "list", "features that nodes must have, e.g. ib&(a|b)", |s, v| {
        parsed_or_none::<FeatureExpr>(v)?;
        v.clone_into(&mut s.spec.features);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_CONSTRAINT", "SALLOC_CONSTRAINT", "SLURM_CONSTRAINT"]),
    Def::flag("contiguous", None, "demand a contiguous range of nodes", |s, _| {
        s.spec.contiguous = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_CONTIGUOUS", "SALLOC_CONTIGUOUS", "SLURM_CONTIGUOUS"]),
    Def::value("nodelist", Some('w'), "hosts", "request a specific list of hosts", |s, v| {
        if v.contains('/') {
            s.nodefile = Some(v.to_owned());
            return Ok(());
        }
        parsed::<HostExpr>(v)?;
        s.nodefile = None;
        v.clone_into(&mut s.spec.nodelist);
        Ok(())
    })
    .only(JOB),
    Def::value("nodefile", Some('F'), "filename", "request a specific list of hosts, in a file", |s, v| {
        s.nodefile = Some(text(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value("exclude", Some('x'), "hosts", "exclude a specific list of hosts", |s, v| {
        if v.contains('/') {
            s.excludefile = Some(v.to_owned());
            return Ok(());
        }
        parsed::<HostExpr>(v)?;
        s.excludefile = None;
        v.clone_into(&mut s.spec.exclude);
        Ok(())
    })
    .only(JOB),
    Def::value(
        "exclusive",
        None,
        "topo",
        "allocate nodes in exclusive mode; topo: whole leaves or blocks",
        |s, v| {
            s.spec.sharing = exclusive(&mut s.notes, v)?.into();
            Ok(())
        },
    )
    .optional()
    .only(SBATCH | SALLOC)
    .env(&["SBATCH_EXCLUSIVE", "SALLOC_EXCLUSIVE"]),
    Def::value("exclusive", None, "topo", "in a job: no CPUs of other steps; else whole nodes", |s, v| {
        s.step.overlap = false;
        s.step.exact = true;
        s.spec.sharing = exclusive(&mut s.notes, v)?.into();
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_EXCLUSIVE"]),
    Def::flag("oversubscribe", Some('s'), "over-subscribe resources with other jobs, by cores", |s, _| {
        s.spec.sharing = Sharing::Shared.into();
        Ok(())
    })
    .or(&["share"])
    .only(JOB)
    .env(&["SBATCH_OVERSUBSCRIBE", "SALLOC_OVERSUBSCRIBE", "SLURM_OVERSUBSCRIBE"]),
    Def::flag(
        "use-min-nodes",
        None,
        "if a range of node counts is given, prefer the smaller count",
        |s, _| {
            s.spec.use_min_nodes = true;
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_USE_MIN_NODES", "SALLOC_USE_MIN_NODES", "SLURM_USE_MIN_NODES"]),
    Def::flag("spread-job", None, "spread job across as many nodes as possible", |s, _| {
        s.spread = true;
        s.advise("SLURM_SPREAD_JOB", "1");
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_SPREAD_JOB", "SALLOC_SPREAD_JOB", "SLURM_SPREAD_JOB"]),
];

/// Returns the sharing of nodes for `--exclusive`. Sharing among jobs of the same user (`user`) or label
/// (`mcs`) is treated as exclusive.
fn exclusive(notes: &mut Vec<String>, value: &str) -> Result<Sharing, String> {
    match value {
        "" | "exclusive" => Ok(Sharing::Exclusive),
        "topo" => Ok(Sharing::Topo),
        "user" | "mcs" => {
            notes
                .push(format!("--exclusive={value}: the job has whole nodes, and shares them with no other"));
            Ok(Sharing::Exclusive)
        }
        other => Err(format!("`{other}` is not known; leave the value out, or say topo or user")),
    }
}

/// True if a word of `--network` is a requirement on links. Slurm uses all other words in plugins for
/// switches of IBM, Cray and HPE, and ignores them without the plugin.
fn is_of_links(word: &str) -> bool {
    let word = word.trim().to_ascii_lowercase();
    word == "latency" || word.starts_with("bw=")
}

pub(super) const FABRIC: &[Def] = &[
    Def::value(
        "topology",
        None,
        "tree|block|none|NAME",
        "rule, or topology, by which nodes are chosen",
        |s, v| {
            s.spec.topology = text(v)?;
            Ok(())
        },
    )
    .only(JOB),
    Def::value(
        "gather",
        None,
        "list",
        "must:LAYER[@TIME], prefer:LAYER, LAYER*M, separated by commas",
        |s, v| {
            s.spec.gather = parsed::<Gather>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB),
    Def::value("gather-with", None, "job", "prefer the domains in which that job runs", |s, v| {
        s.gather_with = Some(text(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value(
        "het-gather",
        None,
        "list",
        "[must:|prefer:]LAYER that holds all components of a het job",
        |s, v| {
            s.spec.het_gather = parsed::<HetGather>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB),
    Def::value("switches", None, "N[@time]", "optimum switches and max time to wait for optimum", |s, v| {
        s.spec.switches = parsed::<Switches>(v)?.to_string();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_REQ_SWITCH", "SALLOC_REQ_SWITCH", "SLURM_REQ_SWITCH"]),
    Def::variable("the time of --switches", |s, v| {
        let wait = Some(parsed::<TimeLimit>(v)?);
        if let Ok(switches) = s.spec.switches.parse::<Switches>() {
            s.spec.switches = Switches { wait, ..switches }.to_string();
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_WAIT4SWITCH", "SALLOC_WAIT4SWITCH", "SLURM_WAIT4SWITCH"]),
    Def::value("segment", None, "N", "place the job in segments of N nodes, each in one block", |s, v| {
        s.spec.segment = Some(count(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_SEGMENT_SIZE", "SALLOC_SEGMENT_SIZE", "SLURM_SEGMENT_SIZE"]),
    Def::flag("spread-segments", None, "no two segments in one block", |s, _| {
        s.spec.spread_segments = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_SPREAD_SEGMENTS", "SALLOC_SPREAD_SEGMENTS", "SLURM_SPREAD_SEGMENTS"]),
    Def::flag("consolidate-segments", None, "all segments in one aggregate of blocks", |s, _| {
        s.spec.consolidate_segments = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_CONSOLIDATE_SEGMENTS", "SALLOC_CONSOLIDATE_SEGMENTS", "SLURM_CONSOLIDATE_SEGMENTS"]),
    Def::value("placement", None, "kind", "consolidated, balanced or distributed", |s, v| {
        s.spec.placement = parsed::<Placement>(v)?.to_string();
        Ok(())
    })
    .only(JOB),
    Def::value(
        "prefer",
        None,
        "list",
        "features that nodes should have if the job starts no later for it, or a switch or block",
        |s, v| {
            if !v.is_empty() {
                FeatureExpr::wish(v).map_err(|error| error.to_string())?;
            }
            v.clone_into(&mut s.spec.prefer);
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_PREFER", "SALLOC_PREFER", "SLURM_PREFER"]),
    Def::value("network", None, "need", "bw=SPEED and latency: what the links must offer", |s, v| {
        let (of_links, others): (Vec<&str>, Vec<&str>) = v.split(',').partition(|word| is_of_links(word));
        if !others.is_empty() {
            let others = others.join(",");
            s.notes.push(format!("--network={others} has no effect: it is for switches that Slurm sets up"));
        }
        s.spec.network = match of_links.join(",") {
            none if none.is_empty() => none,
            need => parsed::<NetworkNeed>(&need)?.to_string(),
        };
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NETWORK", "SALLOC_NETWORK", "SLURM_NETWORK"]),
];
