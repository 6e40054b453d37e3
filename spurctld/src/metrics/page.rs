//! Writers of metric families with the label sets of their callers.

use std::fmt::Result;

use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

/// Counters here have no exemplar.
const NO_EXEMPLAR: Option<&Exemplar<[(&str, &str); 0], f64>> = None;

/// A page while it is written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Writes a gauge for each label set.
    pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes a counter without labels; `_total` is added to its name.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) -> Result {
        self.0.encode_descriptor(name, help, None, MetricType::Counter)?.encode_counter(&value, NO_EXEMPLAR)
    }
}
