//! The least and the most that every domain below a holder gives where a job is spread over as many domains
//! as possible.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

/// The units that a domain can give. A unit is a node, a task, or a multiple of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DomainShare {
    /// Number of units on nodes that every choice uses.
    pub(super) sure: u32,
    /// Number of units on other nodes.
    pub(super) free: u32,
    /// The least and the most units on other nodes.
    pub(super) bounds: (u32, u32),
}

impl DomainShare {
    /// True if no choice has to use the domain, but some can.
    fn is_fresh(self) -> bool {
        self.sure == 0 && self.free > 0
    }

    /// The least and the most units in total.
    pub(super) fn range(self) -> (u32, u32) {
        (self.sure + self.bounds.0, self.sure + self.bounds.1)
    }
}

/// The shares of the domains below one holder after the other.
pub(super) struct ShareBounds<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    /// Number of nodes or tasks in one unit.
    pub(super) unit: u32,
    /// The share of each domain, by its number; entries outside the holder are stale.
    shares: Vec<DomainShare>,
    /// The lowest layer at which every domain is used.
    full: Layer,
    /// The heaviest class of nodes that the job needs, counted from the lightest.
    class: usize,
}

impl<'p, 'a> ShareBounds<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>) -> Self {
        let shares = vec![DomainShare::default(); problem.fabric.domain_count()];
        Self { problem, unit: problem.unit(Layer::LEAF), shares, full: problem.fabric.top(), class: 0 }
    }

    pub(super) fn share(&self, id: DomainId) -> DomainShare {
        self.shares[id.index()]
    }

    /// Number of units of the whole job.
    pub(super) fn amount(&self) -> u32 {
        self.problem.amount / self.unit
    }

    /// Computes the shares and bounds below a holder. Returns the number of nodes of each class but the
    /// lightest, the heaviest first; `None` if the holder does not hold the job.
    pub(super) fn settle(&mut self, holder: DomainId) -> Option<Vec<i64>> {
        let weights = self.weigh(holder)?;
        let mut fresh = vec![0; self.problem.layout.layers];
        self.count(holder, &mut fresh);
        let share = self.share(holder);
        let left = self.amount().checked_sub(share.sure).filter(|&left| left <= share.free)?;
        let layer = self.problem.fabric.domain(holder).layer();
        let is_full = |layer: &u8| fresh[usize::from(*layer)] <= left;
        self.full = (Layer::NODE.0..layer.0).find(is_full).map_or(layer, Layer);
        self.bound(holder);
        Some(weights)
    }

    /// Computes the heaviest class of nodes that the job needs in a holder, and the number of nodes of each
    /// class.
    fn weigh(&mut self, holder: DomainId) -> Option<Vec<i64>> {
        let problem = self.problem;
        let classes = problem.layout.weights;
        self.class = 0;
        if !self.tells_nodes_apart() {
            return Some(Vec::new());
        }
        let (mut required, mut others) = (vec![0_u32; classes + 1], vec![0_u32; classes + 1]);
        let (mut known, mut fit) = (0, true);
        for leaf in problem.leaves_below(holder, |id| problem.room(id) > 0) {
            let before = known;
            for pos in self.usable(leaf) {
                let is_required = self.is_required(pos);
                let counts = if is_required { &mut required } else { &mut others };
                counts[self.class_of(pos)] += 1;
                known += u32::from(is_required);
            }
            fit &= known - before <= problem.room(leaf);
        }
        if !fit || known as usize != problem.required.len() {
            return None;
        }
        let mut left = problem.amount.checked_sub(known)?;
        let mut taken = required;
        for (class, has) in others.into_iter().enumerate() {
            let some = has.min(left);
            (left, taken[class]) = (left - some, taken[class] + some);
            if some > 0 {
                self.class = class;
            }
        }
        let heavier = taken.into_iter().skip(1).rev().map(i64::from);
        (left == 0).then(|| heavier.collect())
    }

    /// True if the nodes of a leaf differ for the job: by weight, or because some are required.
    fn tells_nodes_apart(&self) -> bool {
        self.problem.layout.weights > 0 || !self.problem.required.is_empty()
    }

    /// The class of a node, counted from the lightest.
    fn class_of(&self, pos: Pos) -> usize {
        self.problem.weight_class(pos).map_or(0, |class| self.problem.layout.weights - class)
    }

    fn is_required(&self, pos: Pos) -> bool {
        self.problem.required.binary_search(&pos).is_ok()
    }

    /// True if every choice uses the node; `None` if none does.
    fn is_sure(&self, pos: Pos) -> Option<bool> {
        match self.class_of(pos).cmp(&self.class) {
            _ if self.is_required(pos) => Some(true),
            std::cmp::Ordering::Less => Some(true),
            std::cmp::Ordering::Equal => Some(false),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// The nodes of a leaf that take anything.
    fn usable(&self, leaf: DomainId) -> impl Iterator<Item = Pos> + Clone {
        let problem = self.problem;
        problem.open_nodes(leaf).filter(|&pos| problem.most_on(pos) > 0)
    }

    /// Computes the shares of a domain and the domains below it. Adds to `fresh`, by layer, the domains and
    /// nodes that no choice has to use.
    fn count(&mut self, id: DomainId, fresh: &mut [u32]) {
        let (fabric, mut share) = (self.problem.fabric, DomainShare::default());
        let domain = fabric.domain(id);
        if self.problem.room(id) > 0 {
            match domain.children() {
                [] => {
                    share = self.leaf(id);
                    fresh[Layer::NODE.index()] += self.fresh_nodes(id, share);
                }
                children => {
                    for &child in children {
                        self.count(child, fresh);
                        let below = self.share(child);
                        (share.sure, share.free) =
                            (share.sure + below.sure, share.free.saturating_add(below.free));
                    }
                }
            }
        }
        if share.is_fresh() {
            fresh[domain.layer().index()..=domain.cover().index()].iter_mut().for_each(|count| *count += 1);
        }
        self.shares[id.index()] = share;
    }

    fn leaf(&self, leaf: DomainId) -> DomainShare {
        if !self.tells_nodes_apart() {
            return DomainShare { free: self.problem.room(leaf) / self.unit, ..DomainShare::default() };
        }
        let mut share = DomainShare::default();
        for is_sure in self.usable(leaf).filter_map(|pos| self.is_sure(pos)) {
            *if is_sure { &mut share.sure } else { &mut share.free } += 1;
        }
        share.free = share.free.min(self.problem.room(leaf) - share.sure);
        share
    }

    /// Number of nodes of a leaf that no choice has to use, at most the units that the leaf may give.
    fn fresh_nodes(&self, leaf: DomainId, share: DomainShare) -> u32 {
        if self.problem.by_nodes {
            return share.free;
        }
        u32::try_from(self.usable(leaf).count()).unwrap_or(u32::MAX).min(share.free)
    }

    /// Computes the least and the most units that a domain and the domains below it give.
    fn bound(&mut self, id: DomainId) -> (u32, u32) {
        let domain = self.problem.fabric.domain(id);
        let mut share = self.share(id);
        let own = u32::from(share.is_fresh());
        if share.sure == 0 && share.free == 0 {
            return (0, 0);
        }
        let below = match domain.children() {
            [] => {
                let nodes = self.fresh_nodes(id, share);
                if self.full == Layer::NODE { (nodes, share.free) } else { (0, nodes) }
            }
            children => children.iter().fold((0_u32, 0_u32), |(least, most), &child| {
                let (own_least, own_most) = self.bound(child);
                (least + own_least, most.saturating_add(own_most))
            }),
        };
        share.bounds = match (domain.layer(), domain.cover()) {
            (_, cover) if cover < self.full => (0, own),
            (layer, _) if layer > self.full => below,
            (layer, _) if layer == self.full => (own, below.1),
            _ => (own, own),
        };
        self.shares[id.index()] = share;
        share.bounds
    }

    /// The nodes of a leaf that get tasks, each with the least and the most units.
    pub(super) fn node_bounds(&self, leaf: DomainId) -> Vec<(Pos, (u32, u32))> {
        let share = self.share(leaf);
        let all: Vec<Pos> = self.usable(leaf).collect();
        let are_all_used = self.full == Layer::NODE && share.free as usize >= all.len();
        let of = |pos: Pos| if are_all_used { (1, self.problem.most_on(pos) / self.unit) } else { (0, 1) };
        all.into_iter().map(|pos| (pos, of(pos))).collect()
    }

    /// The nodes of a leaf for `units` units, in fabric order: those that every choice uses, and the first
    /// others.
    pub(super) fn first_nodes(&self, leaf: DomainId, units: u32) -> Vec<Pos> {
        let count = (units * self.unit) as usize;
        if !self.tells_nodes_apart() {
            return self.usable(leaf).take(count).collect();
        }
        let mut left = units - self.share(leaf).sure;
        let is_used = |pos: &Pos| match self.is_sure(*pos) {
            Some(true) => true,
            Some(false) if left > 0 => {
                left -= 1;
                true
            }
            _ => false,
        };
        self.usable(leaf).filter(is_used).collect()
    }
}
