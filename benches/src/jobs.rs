//! Jobs that all differ: each has its own script of 1 KB and environment of 4 KB.

use spur_chance::scatter;
use spur_proto::v1::{Batch, JobSpec, SubmitRequest};

const SCRIPT: usize = 1024;
const ENVIRONMENT: usize = 4096;
/// Number of hexadecimal digits in each line that are the job's own.
const DIGITS: usize = 16;

/// The source of one client's jobs. Making them must cost little: it happens beside the measured work.
pub(crate) struct Jobs {
    script: Text,
    environment: Text,
    nodes: String,
    /// The next job's number, different from those of other clients.
    next: u64,
}

/// A text with positions that are overwritten for each job.
struct Text {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Jobs {
    /// The jobs of a client.
    pub(crate) fn of(client: usize, nodes: u32) -> Self {
        let mut script = Text::beginning("#!/bin/sh\ntrue\n");
        while script.bytes.len() < SCRIPT {
            script.line("# data ", "\n");
        }
        let mut environment = Text::beginning("PATH=/usr/bin:/bin\0");
        while environment.bytes.len() < ENVIRONMENT {
            let name = format!("VARIABLE_{}=", environment.bytes.len());
            environment.line(&name, "\0");
        }
        Self { script, environment, nodes: nodes.to_string(), next: (client as u64) << 32 }
    }

    /// The next job.
    pub(crate) fn next(&mut self, hold: bool) -> SubmitRequest {
        self.next += 1;
        let batch = Batch {
            script: self.script.filled(self.next).into(),
            environment: self.environment.filled(self.next).into(),
            command: "bench.sh".to_owned(),
            work_dir: "/tmp".to_owned(),
            stdout: "/dev/null".to_owned(),
            umask: 0o022,
            ..Batch::default()
        };
        let job = JobSpec {
            name: "bench".to_owned(),
            nodes: self.nodes.clone(),
            time_limit: Some(3600),
            hold,
            batch: Some(batch),
            ..JobSpec::default()
        };
        let request_id = uuid::Uuid::now_v7().as_bytes().to_vec().into();
        SubmitRequest { job: Some(job), request_id, retry: false }
    }
}

impl Text {
    fn beginning(with: &str) -> Self {
        Self { bytes: with.as_bytes().to_vec(), places: Vec::new() }
    }

    fn line(&mut self, before: &str, after: &str) {
        self.bytes.extend_from_slice(before.as_bytes());
        self.places.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; DIGITS]);
        self.bytes.extend_from_slice(after.as_bytes());
    }

    fn filled(&self, number: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (line, place) in self.places.iter().enumerate() {
            let mut value = scatter(number.wrapping_mul(0x1_0001).wrapping_add(line as u64));
            for digit in &mut bytes[*place..*place + DIGITS] {
                *digit = b"0123456789abcdef"[(value & 15) as usize];
                value >>= 4;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_unlike_the_others_and_of_its_size() {
        let (mut one, mut other) = (Jobs::of(0, 1), Jobs::of(1, 1));
        let batches: Vec<Batch> = [one.next(true), one.next(true), other.next(true)]
            .into_iter()
            .filter_map(|request| request.job?.batch)
            .collect();
        assert_eq!(batches.len(), 3);
        for (at, batch) in batches.iter().enumerate() {
            assert!((1024..1100).contains(&batch.script.len()), "{}", batch.script.len());
            assert!((4096..4200).contains(&batch.environment.len()), "{}", batch.environment.len());
            for earlier in &batches[..at] {
                assert_ne!(batch.script, earlier.script);
                assert_ne!(batch.environment, earlier.environment);
            }
        }
    }
}
