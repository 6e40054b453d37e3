-- What the tasks of a step used, as JSON (`spur_core::model::usage::Usage`); empty where that is not known.
ALTER TABLE step ADD COLUMN usage TEXT NOT NULL DEFAULT '';
