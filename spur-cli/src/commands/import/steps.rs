//! Settings of `slurm.conf` for the steps of all jobs, and for licenses.

use spur_core::model::config::resource_limit;
use spur_core::text::gather::is_layer_name;

use super::lines::Pair;
use super::page::{Section, key};
use super::settings::Taker;

impl Taker<'_> {
    /// Takes `KillOnBadExit`, `LaunchParameters`, `PropagateResourceLimits` and
    /// `PropagateResourceLimitsExcept`.
    pub(super) fn of_steps(&mut self, section: &mut Section) {
        self.flag(section, "KillOnBadExit", "kill_on_bad_exit");
        self.launch_parameters(section);
        let only = self.conf.pair("PropagateResourceLimits");
        let except = self.conf.pair("PropagateResourceLimitsExcept");
        let key =
            if only.is_some() { "propagate_resource_limits" } else { "propagate_resource_limits_except" };
        if let (Some(only), Some(except)) = (&only, &except) {
            self.note(section, except, &format!("{only} is taken instead: it names all that jobs get"));
        }
        if let Some(pair) = only.or(except) {
            self.limits(section, &pair, key);
        }
    }

    fn launch_parameters(&mut self, section: &mut Section) {
        let Some(pair) = self.conf.pair("LaunchParameters") else { return };
        let words = pair.value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "(null)");
        let (known, others): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.eq_ignore_ascii_case("use_interactive_step"));
        if !known.is_empty() {
            section.plain("use_interactive_step", true);
        }
        if !others.is_empty() {
            self.note(section, &Pair { value: others.join(","), ..pair.clone() }, "no counterpart");
        }
    }

    /// Takes a list of resource limits. `ALL` and `NONE` are accepted only alone.
    fn limits(&mut self, section: &mut Section, pair: &Pair, key: &str) {
        let words = pair.value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "(null)");
        let mut names = Vec::new();
        for word in words {
            let alone = ["ALL", "NONE"].into_iter().find(|known| known.eq_ignore_ascii_case(word));
            match alone.or_else(|| resource_limit(word)) {
                Some(name) => names.push(name),
                None => {
                    let said = Pair { value: word.to_owned(), ..pair.clone() };
                    self.note(section, &said, "no limit that jobs get of their users");
                }
            }
        }
        if let Some(alone) = names.iter().copied().find(|name| ["ALL", "NONE"].contains(name)) {
            let is_usual = (alone == "ALL") == (key == "propagate_resource_limits");
            names = if is_usual { Vec::new() } else { vec!["NONE"] };
            if !names.is_empty() {
                return section.list("propagate_resource_limits", &names);
            }
        }
        section.list(key, &names);
    }

    pub(super) fn licenses(&mut self) -> Section {
        let mut section = Section::new("[licenses]");
        let Some(pair) = self.conf.pair("Licenses") else { return section };
        let mut seen: Vec<String> = Vec::new();
        for item in pair.value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, count) = item.rsplit_once([':', '*', '=']).unwrap_or((item, "1"));
            let Ok(count) = count.parse::<u32>() else {
                self.note(&mut section, &Pair { value: item.to_owned(), ..pair.clone() }, "not a count");
                continue;
            };
            let plain = |part: &str| -> String {
                part.chars().map(|c| if is_layer_name(&c.to_string()) { c } else { '-' }).collect()
            };
            let plain = match name.split_once('@') {
                Some((license, server)) => format!("{}@{}", plain(license), plain(server)),
                None => plain(name),
            };
            if plain != name {
                let why = format!("called {plain} here: names consist of letters, digits, `_`, `-` and `.`");
                self.note(&mut section, &Pair { value: item.to_owned(), ..pair.clone() }, &why);
            }
            if seen.contains(&plain) {
                self.note(&mut section, &Pair { value: item.to_owned(), ..pair.clone() }, "it comes twice");
            } else {
                section.plain(&key(&plain), count);
                seen.push(plain);
            }
        }
        section
    }
}
