-- Terms of a tool's name that differ from those of its declaration: an operator accepted them before a host declared
-- them. JSON; NULL means the terms of the declaration. That holds for every row that is there already.
ALTER TABLE tools ADD COLUMN terms TEXT;
