-- A checksum of each remembered rule and each declared tool over all that its row says, see `store/checksum.rs`. It is null
-- in the rows of older servers, which nobody can verify.

ALTER TABLE remembered_rules ADD COLUMN checksum INTEGER;
ALTER TABLE tools ADD COLUMN checksum INTEGER;
