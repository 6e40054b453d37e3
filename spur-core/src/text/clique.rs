//! NVLink cliques: the output of `nvidia-smi` for the GPUs of a node.

/// Command that prints the clique of each GPU of a node, one per line.
pub const COMMAND: [&str; 3] =
    ["nvidia-smi", "--query-gpu=fabric.clusterUuid,fabric.cliqueId", "--format=csv,noheader"];
/// Number of digits of the cluster's UUID in the short name of a clique.
const SHORT: usize = 8;

/// One line of the output, which describes a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLine<'a> {
    /// Host that the line names, if any.
    pub host: Option<&'a str>,
    cluster: &'a str,
    clique: &'a str,
    state: Option<&'a str>,
}

impl<'a> GpuLine<'a> {
    /// Parses `[HOST:] CLUSTER, CLIQUE[, STATE]`; the host may also end with a comma or blanks. `None` for
    /// any other line.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<GpuLine<'a>> {
        let line = line.split('#').next().unwrap_or(line);
        let (mut host, rest) = match line.split_once(':') {
            Some((host, rest)) => (Some(host.trim()), rest),
            None => (None, line),
        };
        let mut fields: Vec<&str> = match rest.contains(',') {
            true => rest.split(',').map(str::trim).collect(),
            false => rest.split_whitespace().collect(),
        };
        let is_cluster =
            |field: &str| field.contains("N/A") || field.len() == 36 && field.matches('-').count() == 4;
        if host.is_none() && fields.first().is_some_and(|first| !is_cluster(first)) {
            host = Some(fields.remove(0));
        }
        match fields[..] {
            [cluster, clique] if is_cluster(cluster) => Some(GpuLine { host, cluster, clique, state: None }),
            [cluster, clique, state] if is_cluster(cluster) => {
                Some(GpuLine { host, cluster, clique, state: Some(state) })
            }
            _ => None,
        }
    }

    /// The clique of the GPU as `CLUSTER.CLIQUE`; `None` if the GPU is in none, or not yet.
    #[must_use]
    pub fn clique(&self) -> Option<String> {
        let is_ready = self.state.is_none_or(|state| state.eq_ignore_ascii_case("completed"));
        let is_there =
            is_ready && self.clique.parse::<u64>().is_ok() && self.cluster.contains(|c| !"0-".contains(c));
        is_there.then(|| format!("{}.{}", self.cluster.to_ascii_lowercase(), self.clique))
    }
}

/// Reads the output for one node. Returns the clique of its GPUs; `None` if they are in none.
///
/// # Errors
/// A line that describes no GPU, or GPUs in different cliques.
pub fn of_node(text: &str) -> Result<Option<String>, String> {
    let mut found: Option<Option<String>> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let gpu = GpuLine::parse(line).ok_or_else(|| format!("`{line}` is not CLUSTER-UUID, CLIQUE-ID"))?;
        let clique = gpu.clique();
        if let Some(before) = found.as_ref().filter(|before| **before != clique) {
            let shown = |clique: &Option<String>| clique.clone().unwrap_or_else(|| "none".to_owned());
            let (one, other) = (shown(before), shown(&clique));
            return Err(format!("the GPUs are in different NVLink cliques: {one}, {other}"));
        }
        found = Some(clique);
    }
    Ok(found.flatten())
}

/// The name of a clique as a domain: `prefix`, the first eight digits of the cluster's UUID, and the number
/// of the clique.
#[must_use]
pub fn short_name(prefix: &str, clique: &str) -> String {
    name(prefix, clique, SHORT)
}

/// The name of a clique as a domain, with the whole UUID of the cluster.
#[must_use]
pub fn full_name(prefix: &str, clique: &str) -> String {
    name(prefix, clique, usize::MAX)
}

fn name(prefix: &str, clique: &str, digits: usize) -> String {
    match clique.rsplit_once('.') {
        Some((cluster, id)) => format!("{prefix}-{}-{id}", cluster.get(..digits).unwrap_or(cluster)),
        None => clique.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-1111-2222-3333-444444444444";

    #[test]
    fn gpus_of_a_node_agree_on_its_clique() {
        for (text, expected) in [
            (format!("{A}, 7\n{A}, 7\n"), Ok(Some(format!("{A}.7")))),
            (format!("{}, 7, Completed\n\n", A.to_uppercase()), Ok(Some(format!("{A}.7")))),
            (format!("{A}, 7, In Progress\n"), Ok(None)),
            ("[N/A], [N/A]\n[N/A], [N/A]\n".to_owned(), Ok(None)),
            ("00000000-0000-0000-0000-000000000000, 0\n".to_owned(), Ok(None)),
            (String::new(), Ok(None)),
            (format!("{A}, 7\n{A}, 8\n"), Err("different")),
            (format!("{A}, 7\n[N/A], [N/A]\n"), Err("different")),
            ("No devices were found\n".to_owned(), Err("is not CLUSTER-UUID")),
        ] {
            match (of_node(&text), expected) {
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{text}"),
            }
        }
        assert_eq!(short_name("nvl", &format!("{A}.7")), "nvl-aaaaaaaa-7");
    }
}
