//! A serializer that writes nothing: it meets every member of a value by the names of its type, its variant
//! and its field.
//!
//! Members below `#[serde(flatten)]` are met without the name of their type, and are not found.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::{ADDED, Added, FeatureLevel};

/// Returns the first member of `value` that a level above `has` has added; `None` if there is none.
pub(super) fn first_above(has: FeatureLevel, value: &impl Serialize) -> Option<&'static Added> {
    let mut probe = Probe { has, found: None };
    // The walk stops with an error once a member is found.
    let _ = value.serialize(&mut probe);
    probe.found
}

struct Probe {
    has: FeatureLevel,
    found: Option<&'static Added>,
}

impl Probe {
    /// Compares a member with the table; an error ends the walk.
    fn meet(&mut self, of: &str, variant: &str, field: &str) -> Result<(), fmt::Error> {
        let is_met = |added: &&Added| {
            added.level > self.has && added.of == of && added.variant == variant && added.field == field
        };
        self.found = ADDED.iter().find(is_met);
        if self.found.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// The members of one struct, tuple, list or map.
struct Members<'a> {
    probe: &'a mut Probe,
    of: &'static str,
    variant: &'static str,
}

impl<'a> Members<'a> {
    fn unnamed(probe: &'a mut Probe) -> Self {
        Members { probe, of: "", variant: "" }
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), fmt::Error> {
        value.serialize(&mut *self.probe)
    }

    fn field(&mut self, key: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), fmt::Error> {
        self.probe.meet(self.of, self.variant, key)?;
        self.value(value)
    }
}

macro_rules! nothing {
    ($($method:ident: $type:ty),+ $(,)?) => {$(
        fn $method(self, _: $type) -> Result<(), fmt::Error> {
            Ok(())
        }
    )+};
}

impl<'a> Serializer for &'a mut Probe {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Members<'a>;
    type SerializeTuple = Members<'a>;
    type SerializeTupleStruct = Members<'a>;
    type SerializeTupleVariant = Members<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Members<'a>;
    type SerializeStructVariant = Members<'a>;

    nothing! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), fmt::Error> {
        self.meet(of, variant, "")
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        self.meet(of, variant, "")?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Members<'a>, fmt::Error> {
        Ok(Members::unnamed(self))
    }

    fn serialize_tuple(self, _: usize) -> Result<Members<'a>, fmt::Error> {
        Ok(Members::unnamed(self))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, fmt::Error> {
        Ok(Members::unnamed(self))
    }

    fn serialize_tuple_variant(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'a>, fmt::Error> {
        self.meet(of, variant, "")?;
        Ok(Members::unnamed(self))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, fmt::Error> {
        Ok(Members::unnamed(self))
    }

    fn serialize_struct(self, of: &'static str, _: usize) -> Result<Members<'a>, fmt::Error> {
        Ok(Members { probe: self, of, variant: "" })
    }

    fn serialize_struct_variant(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'a>, fmt::Error> {
        self.meet(of, variant, "")?;
        Ok(Members { probe: self, of, variant })
    }
}

macro_rules! members {
    ($($trait:ident: $method:ident),+ $(,)?) => {$(
        impl $trait for Members<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
                self.value(value)
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        }
    )+};
}
members! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

macro_rules! named_members {
    ($($trait:ident),+ $(,)?) => {$(
        impl $trait for Members<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), fmt::Error> {
                self.field(key, value)
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        }
    )+};
}
named_members! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Members<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), fmt::Error> {
        self.value(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        self.value(value)
    }

    fn end(self) -> Result<(), fmt::Error> {
        Ok(())
    }
}
