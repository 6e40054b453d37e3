//! The conditions of a query, in SQL that both SQLite and PostgreSQL understand.

use sqlx::{Database, Encode, QueryBuilder, Type};

use super::{EventQuery, OldRun, Query};

/// Largest number of values in one list of a query; callers split longer lists.
pub(in crate::store) const LIST: usize = 8192;

/// Appends the conditions of a query after `WHERE true`.
pub(in crate::store) fn restrict<DB: Database>(sql: &mut QueryBuilder<DB>, query: &Query)
where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    if !query.job_ids.is_empty() {
        sql.push(" AND (job_id IN ");
        numbers(sql, &query.job_ids);
        sql.push(" OR array_job_id IN ");
        numbers(sql, &query.job_ids);
        sql.push(" OR het_job_id IN ");
        numbers(sql, &query.job_ids);
        sql.push(")");
    }
    if query.uids.is_empty() || query.users.is_empty() {
        if !query.uids.is_empty() {
            sql.push(" AND uid IN ");
            numbers(sql, &query.uids);
        }
        one_of(sql, "user", &query.users);
    } else {
        sql.push(" AND (uid IN ");
        numbers(sql, &query.uids);
        sql.push(" OR \"user\" IN ");
        texts(sql, &query.users);
        sql.push(")");
    }
    if let Some(uid) = query.only {
        sql.push(" AND uid = ").push_bind(i64::from(uid));
    }
    one_of(sql, "account", &query.accounts);
    one_of(sql, "partition", &query.partitions);
    one_of(sql, "qos", &query.qos);
    one_of(sql, "name", &query.names);
    restrict_time(sql, query);
    if let Some((job_id, restarts)) = query.after {
        sql.push(" AND (job_id, restarts) > (")
            .push_bind(i64::from(job_id))
            .push(", ")
            .push_bind(i64::from(restarts))
            .push(")");
    }
    if query.open {
        sql.push(" AND ended IS NULL");
    }
    if query.last_run_only {
        sql.push(" AND restarts = (SELECT max(restarts) FROM job AS run WHERE run.job_id = job.job_id)");
    }
}

/// Restricts a query to runs within the time window that were in one of the states at some time of it.
fn restrict_time<DB: Database>(sql: &mut QueryBuilder<DB>, query: &Query)
where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    if query.states.is_empty() || (query.not_before, query.before) == (None, None) {
        one_of(sql, "state", &query.states);
        if query.states.iter().any(|state| state == "PENDING") {
            sql.push(" AND (state <> 'PENDING' OR eligible IS NOT NULL)");
        }
        if let Some(time) = query.not_before {
            sql.push(" AND (ended IS NULL OR ended >= ").push_bind(time).push(")");
        }
        if let Some(time) = query.before {
            // Jobs that are asked for by id are there before they are eligible.
            let since = if query.job_ids.is_empty() { "coalesce(eligible, started)" } else { "submitted" };
            sql.push(format_args!(" AND {since} < ")).push_bind(time);
        }
        return;
    }
    let (from, to) = (query.not_before.unwrap_or(i64::MIN), query.before.unwrap_or(i64::MAX));
    sql.push(" AND (false");
    for state in &query.states {
        match state.as_str() {
            "PENDING" => {
                sql.push(" OR (coalesce(eligible, started) <= ").push_bind(to);
                sql.push(" AND coalesce(started, ended, ").push_bind(i64::MAX).push(") >= ").push_bind(from);
                sql.push(")");
            }
            "RUNNING" => {
                sql.push(" OR (started <= ").push_bind(to);
                sql.push(" AND (ended >= ").push_bind(from);
                sql.push(" OR ended IS NULL AND state <> 'SUSPENDED'))");
            }
            "SUSPENDED" => {
                sql.push(" OR (state = 'SUSPENDED' AND started <= ").push_bind(to).push(")");
            }
            _ => {
                sql.push(" OR (state = ").push_bind(state.clone());
                sql.push(" AND ended BETWEEN ").push_bind(from).push(" AND ").push_bind(to).push(")");
            }
        }
    }
    sql.push(")");
}

fn one_of<DB: Database>(sql: &mut QueryBuilder<DB>, column: &str, values: &[String])
where
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    if !values.is_empty() {
        sql.push(format_args!(" AND \"{column}\" IN "));
        texts(sql, values);
    }
}

fn texts<DB: Database>(sql: &mut QueryBuilder<DB>, values: &[String])
where
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    sql.push("(");
    let mut list = sql.separated(", ");
    for value in values {
        list.push_bind(value.clone());
    }
    sql.push(")");
}

fn numbers<DB: Database>(sql: &mut QueryBuilder<DB>, values: &[u32])
where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
{
    sql.push("(");
    let mut list = sql.separated(", ");
    for value in values {
        list.push_bind(i64::from(*value));
    }
    sql.push(")");
}

/// Appends a list of runs (job id, restarts).
pub(in crate::store) fn runs<DB: Database>(sql: &mut QueryBuilder<DB>, runs: &[(u32, u32)])
where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
{
    sql.push_tuples(runs, |mut tuple, &(job_id, restarts)| {
        tuple.push_bind(i64::from(job_id)).push_bind(i64::from(restarts));
    });
}

/// Appends the conditions, order and limit of a query for node events after `WHERE true`.
pub(in crate::store) fn restrict_events<DB: Database>(sql: &mut QueryBuilder<DB>, query: &EventQuery)
where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    if let Some(time) = query.not_before {
        sql.push(" AND (ended IS NULL OR ended >= ").push_bind(time).push(")");
    }
    if let Some(time) = query.before {
        sql.push(" AND started < ").push_bind(time);
    }
    if query.open {
        sql.push(" AND ended IS NULL");
    }
    if let Some((started, node, state)) = &query.after {
        sql.push(" AND (started, node, state) > (").push_bind(*started);
        sql.push(", ").push_bind(node.clone()).push(", ").push_bind(state.clone()).push(")");
    }
    sql.push(" ORDER BY started, node, state LIMIT ").push_bind(i64::from(Query::PAGE));
}

/// Deletes a page of the events of nodes that ended before the first parameter, each of which began before
/// then. The second parameter is the size of a page.
pub(in crate::store) const PURGE_EVENTS: &str = "DELETE FROM node_event WHERE (node, started, state) IN \
    (SELECT node, started, state FROM node_event WHERE started <= $1 AND ended < $1 ORDER BY started LIMIT $2)";

/// Appends the conditions, order and limit of a query for old runs after `WHERE true`.
pub(in crate::store) fn restrict_old_runs<DB: Database>(
    sql: &mut QueryBuilder<DB>,
    before: i64,
    after: Option<(i64, u32, u32)>,
) where
    for<'q> i64: Encode<'q, DB> + Type<DB>,
{
    sql.push(" AND ended < ").push_bind(before);
    if let Some((ended, job_id, restarts)) = after {
        sql.push(" AND (ended, job_id, restarts) > (").push_bind(ended);
        sql.push(", ").push_bind(i64::from(job_id)).push(", ").push_bind(i64::from(restarts)).push(")");
    }
    sql.push(" AND job_id <> (SELECT max(job_id) FROM job) ORDER BY ended, job_id, restarts LIMIT ");
    sql.push_bind(i64::from(OldRun::PAGE));
}
