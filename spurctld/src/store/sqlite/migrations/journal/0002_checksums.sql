-- CRC-32 of the entry's other columns. Entries of before have none.
ALTER TABLE journal ADD COLUMN sum INTEGER;
