//! InfiniBand fabrics for tests, in the formats of `ibnetdiscover` and `ibsim`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A fabric: devices, each with a description, and links between their ports.
#[derive(Clone, Default)]
pub(crate) struct Fabric {
    /// Description of each device, and true for a switch.
    devices: Vec<(String, bool)>,
    /// Device and port of both ends.
    pub(crate) links: Vec<[(usize, usize); 2]>,
    /// Number of used ports per device.
    used: Vec<usize>,
}

/// A deterministic random generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

impl Fabric {
    /// Adds a switch.
    pub(crate) fn switch(&mut self, name: &str) -> usize {
        self.add(name, true)
    }

    /// Adds an adapter.
    pub(crate) fn adapter(&mut self, description: &str) -> usize {
        self.add(description, false)
    }

    fn add(&mut self, description: &str, is_switch: bool) -> usize {
        self.devices.push((description.to_owned(), is_switch));
        self.used.push(0);
        self.devices.len() - 1
    }

    /// Connects the next free ports of two devices.
    pub(crate) fn link(&mut self, a: usize, b: usize) {
        let mut end = |device: usize| {
            self.used[device] += 1;
            (device, self.used[device])
        };
        let ends = [end(a), end(b)];
        self.links.push(ends);
    }

    /// Returns units of hosts with one leaf per rail; all leaves are linked to all spines. Unit 2 has the
    /// hosts `u2h1`, … and the leaves `leaf2-1`, ….
    pub(crate) fn rails(hosts: &[usize], rails: usize, spines: usize) -> Fabric {
        let mut fabric = Fabric::default();
        let spines: Vec<usize> = (1..=spines).map(|spine| fabric.switch(&format!("spine{spine}"))).collect();
        for (unit, &hosts) in (1..).zip(hosts) {
            for rail in 1..=rails {
                let leaf = fabric.switch(&format!("leaf{unit}-{rail}"));
                for host in 1..=hosts {
                    let adapter = fabric.adapter(&format!("u{unit}h{host} mlx5_{rail}"));
                    fabric.link(leaf, adapter);
                }
                spines.iter().for_each(|&spine| fabric.link(leaf, spine));
            }
        }
        fabric
    }

    /// Returns pods of leaves below their own spines, with cores above all spines; each host has one port.
    pub(crate) fn pods(pods: usize, leaves: usize, hosts: usize) -> Fabric {
        let mut fabric = Fabric::default();
        let cores = [fabric.switch("core1"), fabric.switch("core2")];
        for pod in 1..=pods {
            let spines: Vec<usize> =
                (1..=2).map(|spine| fabric.switch(&format!("pod{pod}-spine{spine}"))).collect();
            for &spine in &spines {
                cores.iter().for_each(|&core| fabric.link(spine, core));
            }
            for leaf in 1..=leaves {
                let name = format!("pod{pod}-leaf{leaf}");
                let switch = fabric.switch(&name);
                spines.iter().for_each(|&spine| fabric.link(switch, spine));
                for host in 1..=hosts {
                    let adapter = fabric.adapter(&format!("p{pod}l{leaf}h{host} HCA-1"));
                    fabric.link(switch, adapter);
                }
            }
        }
        fabric
    }

    /// Exchanges cables between hosts of different units, with other hosts in each of `swaps`. Returns the
    /// names of the hosts.
    pub(crate) fn swap(&mut self, swaps: usize, dice: &mut Dice) -> BTreeSet<String> {
        let host = |fabric: &Fabric, link: usize| {
            let [(leaf, _), (adapter, _)] = fabric.links[link];
            let name = fabric.devices[adapter].0.split(' ').next().unwrap_or_default().to_owned();
            let unit = fabric.devices[leaf].0.split('-').next().unwrap_or_default().to_owned();
            (name, unit)
        };
        let cables: Vec<usize> =
            (0..self.links.len()).filter(|&link| !self.devices[self.links[link][1].0].1).collect();
        let mut swapped = BTreeSet::new();
        while swapped.len() < swaps * 2 {
            let [one, other] = [0; 2].map(|_| cables[dice.below(cables.len())]);
            let ((a, unit_a), (b, unit_b)) = (host(self, one), host(self, other));
            if unit_a == unit_b || swapped.contains(&a) || swapped.contains(&b) {
                continue;
            }
            let end = self.links[one][1];
            self.links[one][1] = self.links[other][1];
            self.links[other][1] = end;
            swapped.extend([a, b]);
        }
        swapped
    }

    fn guid(&self, device: usize) -> String {
        let kind = if self.devices[device].1 { 'S' } else { 'H' };
        format!("{kind}-{:016x}", 0x0002_c900_0000_0000_u64 + device as u64)
    }

    /// Returns the fabric in the format of `ibnetdiscover`.
    pub(crate) fn ibnetdiscover(&self) -> String {
        let mut lines: Vec<Vec<(usize, (usize, usize))>> = vec![Vec::new(); self.devices.len()];
        for &[from, to] in &self.links {
            lines[from.0].push((from.1, to));
            lines[to.0].push((to.1, from));
        }
        let mut text = String::from("#\n# Topology file: generated on Sat Nov 28 12:00:00 2026\n#\n");
        let order = (0..self.devices.len()).filter(|&at| self.devices[at].1);
        let order: Vec<usize> =
            order.chain((0..self.devices.len()).filter(|&at| !self.devices[at].1)).collect();
        for device in order {
            let (description, is_switch) = &self.devices[device];
            let id = self.guid(device);
            let (kind, key) = if *is_switch { ("Switch", "switchguid") } else { ("Ca", "caguid") };
            let _ = writeln!(text, "\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{}\n{key}=0x{0}", &id[2..]);
            let _ = writeln!(text, "{kind}\t64 \"{id}\"\t\t# \"{description}\" enhanced port 0 lid 1 lmc 0");
            for &(port, (other, far)) in &lines[device] {
                let (id, description) = (self.guid(other), &self.devices[other].0);
                let _ = writeln!(text, "[{port}]\t\"{id}\"[{far}]\t\t# \"{description}\" lid 1 4xNDR");
            }
        }
        text
    }

    /// Returns the fabric in the format of `ibsim`.
    pub(crate) fn ibsim(&self) -> String {
        let mut text = String::new();
        for (device, (description, is_switch)) in self.devices.iter().enumerate() {
            let kind = if *is_switch { "Switch" } else { "Hca" };
            let _ = writeln!(text, "{kind}\t{} \"{description}\"", self.used[device].max(1));
            for &[from, to] in &self.links {
                for (near, far) in [(from, to), (to, from)] {
                    if near.0 == device {
                        let _ = writeln!(text, "[{}]\t\"{}\"[{}]", near.1, self.devices[far.0].0, far.1);
                    }
                }
            }
            text.push('\n');
        }
        text
    }

    /// Returns the description of the first adapter.
    pub(crate) fn first_adapter(&self) -> &str {
        &self.devices.iter().find(|(_, is_switch)| !is_switch).expect("an adapter").0
    }

    /// Changes the description of an adapter.
    pub(crate) fn describe(&mut self, before: &str, after: &str) {
        let device = self.devices.iter_mut().find(|(description, _)| description == before);
        after.clone_into(&mut device.expect("such a device").0);
    }
}
