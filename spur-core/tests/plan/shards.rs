//! Tests of GPUs that jobs share: each has one entry, under any name for its parts.

use spur_core::model::alloc::GresAlloc;
use spur_core::model::node::{NodeGres, NodeShape};

fn shape(gres: &[(&str, &str, u32)]) -> NodeShape {
    let gres = gres.iter().map(|(name, kind, count)| NodeGres {
        name: (*name).into(),
        kind: (*kind).into(),
        count: *count,
    });
    let mut shape = NodeShape { gres: gres.collect(), ..NodeShape::default() };
    shape.share_gpus();
    shape
}

fn written(gres: &[NodeGres]) -> Vec<String> {
    gres.iter().map(|gres| format!("{}:{}:{}", gres.name, gres.kind, gres.count)).collect()
}

#[test]
fn every_gpu_has_its_shards() {
    let shared = shape(&[("nic", "", 2), ("gpu", "a", 1), ("shard", "", 8), ("gpu", "b", 2)]);
    assert_eq!(written(&shared.gres), ["nic::2", "gpu:a:3", "gpu:b:3", "gpu:b:2"]);
    assert_eq!(written(&shared.listed()), ["nic::2", "gpu:a:1", "gpu:b:2", "shard::8"]);
    assert_eq!(shared.gpus(), 3);
    // A node without GPUs or without shards is not changed.
    for gres in [&[("shard", "", 8)][..], &[("gpu", "", 2), ("nic", "", 1)]] {
        let plain = shape(gres);
        assert!(!plain.shared_gpus);
        assert_eq!(written(&plain.gres), written(&plain.listed()));
    }
}

#[test]
fn who_has_all_shards_has_them_or_the_gpu() {
    let shared = shape(&[("nic", "", 2), ("gpu", "a", 1), ("gpu", "b", 2), ("shard", "", 6)]);
    let called = |entry, ids: &str, shards| {
        let held = GresAlloc { entry, ids: ids.parse().unwrap(), shards };
        let called = shared.called(&held).unwrap();
        format!("{}:{}:{} {}", called.name, called.kind, called.count, called.ids)
    };
    assert_eq!(called(0, "1", false), "nic::1 1");
    assert_eq!(called(3, "0-1", false), "gpu:b:1 2");
    assert_eq!(called(3, "0-1", true), "shard::2 2");
    assert_eq!(called(1, "1", true), "shard::1 0");
}
