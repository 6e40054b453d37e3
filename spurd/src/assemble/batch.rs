//! The order to run a batch script.

use spur_core::id::StepId;
use spur_core::text::pattern::PatternContext;
use spur_proto::{convert, v1};
use step_wire::attempt::StepAttempt;
use step_wire::order::{Launch, StepOrder, TaskOrder};

use super::binding::cpu_set;
use super::files::{stderr, stdin, stdout};
use super::variables::{pairs, position, scratch, task_variables, with_variables};
use super::{NodeFacts, Prepared, Wishes, identity, limits};

impl NodeFacts {
    /// Builds the order to run a batch script.
    ///
    /// # Errors
    /// Names the part of the launch that cannot be carried out.
    pub fn batch(&self, order: v1::Launch) -> Result<Prepared, String> {
        let attempt = convert::agent::attempt(order.attempt.ok_or("the order names no attempt")?);
        let user = order.user.ok_or("the order names no user")?;
        let batch = order.batch.ok_or("the order has no batch script")?;
        let part = order.part.unwrap_or_default();
        let array = order.array_job_id.zip(order.array_task_id);
        let context = PatternContext {
            job: attempt.job.0,
            array,
            step: None,
            node: &self.name,
            node_number: 0,
            task: 0,
            user: &user.name,
            job_name: &order.job_name,
            restarts: attempt.restart,
        };
        let cpus = cpu_set(&part.cpus)?;
        let (given, order_site) = (pairs(order.environment), order.program_environment);
        // The controller's variables replace the node's.
        let mut variables = self.common(&cpus, &part.devices)?;
        let is_placed = given.iter().any(|(name, _)| name == "SLURM_TOPOLOGY_ADDR");
        variables.extend(given);
        if !is_placed {
            variables.extend(position("", "", &self.name));
        }
        variables.push(("ENVIRONMENT".to_owned(), "BATCH".to_owned()));
        variables.push(("HOSTNAME".to_owned(), self.name.clone()));
        variables.extend(scratch(&batch.environment));
        let task = TaskOrder {
            global: 0,
            argv: Vec::new(),
            env: task_variables(0, 0, 0, "0"),
            cpus: self.kernel_cpus(cpus.iter()),
            tell_binding: None,
            memory: None,
            stdin: stdin(&batch.stdin, &context)?,
            stdout: stdout(&batch, &context)?,
            stderr: stderr(&batch, &context)?,
        };
        let step = StepAttempt { attempt, step: StepId::BATCH };
        let order = StepOrder {
            argv: batch.args,
            umask: batch.umask,
            limits: limits(&batch.limits)?,
            tasks: vec![task],
            ..self.order(step, identity(user), batch.work_dir)
        };
        let wishes = Wishes { sampling_seconds: batch.sampling_seconds, oom_kill_step: batch.oom_kill_step };
        let environment = with_variables(&batch.environment, &variables);
        let order = self.with_wishes(order, wishes, &environment);
        Ok(Prepared {
            launch: Launch { order, environment, script: Some(batch.script.to_vec()) },
            memory_mb: part.memory_mb,
            step_memory_mb: 0,
            cpus: self.kernel_cpus(cpus.iter()),
            denied: self.others(&part.devices)?,
            site_environment: self.site_environment(order_site, &part.devices)?,
        })
    }
}
