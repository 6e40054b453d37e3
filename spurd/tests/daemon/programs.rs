//! The environments of the site's programs on a node, and the limits of a client's influence on them.

use std::collections::BTreeMap;
use std::fs;

use spur_proto::v1;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::step_input::Input;

use crate::steps::{Client, credential, step_launch};
use crate::world::{ATTEMPT, Link, World, done};

/// Returns a node whose prolog and epilog write their environments to `prolog` and `epilog`.
async fn node() -> (World, Link) {
    let mut world = World::new().await;
    let mut lines = "[agent]\n".to_owned();
    for name in ["prolog", "epilog"] {
        let place = world.path(name);
        let program = world.path(&format!("run-{name}"));
        let script = format!("env -0 >{0}.new && mv {0}.new {0}", place.display());
        spur_tests::write_program(&program, &script);
        lines += &format!("{name} = \"{}\"\n", program.display());
    }
    world.configure(&lines);
    world.start();
    let link = world.welcome(1).await;
    (world, link)
}

/// Returns the environment that a program had.
async fn told(world: &World, program: &str) -> BTreeMap<String, String> {
    let text = world.file(program).await;
    let pairs = text.split_terminator('\0').filter_map(|variable| variable.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn variable(key: &str, value: &str) -> v1::KeyValue {
    v1::KeyValue { key: key.to_owned(), value: value.to_owned() }
}

/// Returns hostile variables, in name or value, that a user's client can send.
fn hostile() -> Vec<v1::KeyValue> {
    vec![
        variable("LD_PRELOAD", "/tmp/evil.so"),
        variable("BASH_ENV", "/tmp/evil.sh"),
        variable("PATH", "/tmp/evil"),
        variable("SPUR_CONF", "/tmp/evil.toml"),
        variable("SLURM_JOB_UID", "0"),
        variable("SLURM_EVIL", "1"),
        variable("SLURM_JOB_ID", "1"),
    ]
}

fn assert_safe(told: &BTreeMap<String, String>, world: &World) {
    for (name, value) in told {
        assert!(!name.contains("EVIL") && !value.contains("evil"), "{name}={value}");
    }
    assert_eq!(told.get("LD_PRELOAD"), None);
    assert_eq!(told["SLURM_JOB_ID"], "42");
    assert_ne!(told.get("SLURM_JOB_UID").map(String::as_str), Some("0"));
    assert_eq!(told["SPUR_CONF"], world.path("spur.toml").display().to_string());
}

#[tokio::test]
async fn nothing_that_a_client_says_reaches_prolog_and_epilog() {
    let (world, mut link) = node().await;
    let launch = v1::StepLaunch { job_environment: hostile(), ..step_launch(&world, "true") };
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    client.until_done().await;
    assert_safe(&told(&world, "prolog").await, &world);
    link.terminate(false).await;
    while link.acknowledged_report().await != done() {}
    assert_safe(&told(&world, "epilog").await, &world);
}

#[tokio::test]
async fn a_value_that_no_program_can_be_given_drains_no_node() {
    let (world, mut link) = node().await;
    let values = vec![variable("SLURM_A", "a\0b"), variable("SLURM_B", &"x".repeat(3_000_000))];
    let launch = v1::StepLaunch { job_environment: values, ..step_launch(&world, "true") };
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    client.until_done().await;
    let told = told(&world, "prolog").await;
    assert_eq!((told.get("SLURM_A"), told.get("SLURM_B")), (None, None));
    link.terminate(false).await;
    // A failed epilog would be reported.
    while link.acknowledged_report().await != done() {}
}

#[tokio::test]
async fn what_an_older_spurd_has_kept_is_filtered() {
    let (world, mut link) = node().await;
    let mut client = Client::open(&world, &link, Input::Launch(step_launch(&world, "true"))).await;
    client.until_done().await;
    let kept = r#"[["LD_PRELOAD","/tmp/evil.so"],["SPUR_CONF","/tmp/evil"],["SLURM_JOB_COMMENT","kept"],["SLURM_JOB_ID","1"]]"#;
    fs::write(world.path("spool/jobs/42.0.variables"), kept).unwrap();
    link.terminate(false).await;
    while link.acknowledged_report().await != done() {}
    let told = told(&world, "epilog").await;
    assert_safe(&told, &world);
    assert_eq!(told["SLURM_JOB_COMMENT"], "kept");
}

#[tokio::test]
async fn the_controller_tells_prolog_and_epilog_of_the_job() {
    let (world, mut link) = node().await;
    let said = v1::StepCredential {
        program_environment: vec![variable("SLURM_JOB_COMMENT", "hi"), variable("LD_PRELOAD", "x")],
        ..credential()
    };
    let launch = v1::StepLaunch { credential: world.keys.seal(&said).into(), ..step_launch(&world, "true") };
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    client.until_done().await;
    let told_prolog = told(&world, "prolog").await;
    assert_eq!((told_prolog["SLURM_JOB_COMMENT"].as_str(), told_prolog.get("LD_PRELOAD")), ("hi", None));
    assert_eq!(told_prolog["SLURM_SCRIPT_CONTEXT"], "prolog_slurmd");
    let exit = v1::JobExit { code: 3, signal: 0, derived_code: 5, derived_signal: 0 };
    let order = v1::Terminate { attempt: Some(ATTEMPT), exit: Some(exit), ..v1::Terminate::default() };
    link.order(Down::Terminate(order)).await;
    while link.acknowledged_report().await != done() {}
    let told = told(&world, "epilog").await;
    let of_end = ["SLURM_JOB_EXIT_CODE", "SLURM_JOB_EXIT_CODE2", "SLURM_JOB_DERIVED_EC", "SLURM_JOB_COMMENT"];
    assert_eq!(of_end.map(|name| told[name].as_str()), ["768", "3:0", "1280", "hi"]);
}

#[tokio::test]
async fn a_job_that_has_the_node_alone_has_its_exit_code_in_the_epilog() {
    let (world, mut link) = node().await;
    let Down::Launch(launch) = world.launch(42, "exit 7") else { panic!("no launch") };
    let program_environment = vec![variable("SLURM_JOB_COMMENT", "hi")];
    link.order(Down::Launch(v1::Launch { alone: true, program_environment, ..launch })).await;
    while link.acknowledged_report().await != done() {}
    let told = told(&world, "epilog").await;
    let names = ["SLURM_JOB_EXIT_CODE", "SLURM_JOB_EXIT_CODE2", "SLURM_JOB_COMMENT"];
    assert_eq!(names.map(|name| told[name].as_str()), ["1792", "7:0", "hi"]);
}
