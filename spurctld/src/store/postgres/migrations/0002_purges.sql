-- Runs that ended before this time may have been purged; NULL if no run was ever purged.
ALTER TABLE reached ADD COLUMN complete_from bigint;
