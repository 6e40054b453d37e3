//! Whole nodes on up to some sixty nodes in four layers, and on trees of some hundred: the domains that lost are those that
//! the fronts name, for the same reasons.

use crate::model::fabric::Layer;
use crate::sched::place::Ask;

use super::case::{Case, Random};

fn question(random: &mut Random) -> Case {
    let fabric = match random.one_in(2) {
        true => random.small_four_layers(),
        false => random.large_tree(),
    };
    // Leaves that are alike are the rule on an idle machine.
    let slots = random.whole(&fabric);
    let most = random.pick(&[2, 6, 20]);
    let nodes = random.between(1, most);
    let mut case = Case::new(random, fabric, slots, Ask::nodes(nodes));
    if random.one_in(3) {
        let wanted = random.between(1, 2);
        case.ask.prefer =
            (0..wanted).map(|_| Layer(random.between(1, case.fabric.top().0.into()) as u8)).collect();
    }
    if random.one_in(4) {
        case.ask.must = Some(Layer(random.between(1, case.fabric.top().0.into()) as u8));
    }
    case.ask.whole_leaves = random.one_in(6);
    case
}

#[test]
fn of_whole_nodes() {
    super::each_seed("rivals of whole nodes", 2000, |random| {
        let case = question(random);
        let short = Ask { budget: 1 << 40, ..case.ask.clone() };
        // A limit that never binds keeps an ask from being one of counts alone.
        let mut long = short.clone();
        long.max_spans.push((case.fabric.top(), 1));
        super::same_answers(&case, &short, &long, random.pick(&[1, 3, 50]))
    });
}
