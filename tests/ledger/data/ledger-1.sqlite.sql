-- A ledger of version 1, as depsue wrote it; made-up records.
BEGIN TRANSACTION;
CREATE TABLE depsue_campaigns (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id), name TEXT NOT NULL UNIQUE,
 rounds INTEGER NOT NULL CHECK (rounds >= 1), retries INTEGER NOT NULL CHECK (retries IN (0, 1)),
 settings TEXT NOT NULL);
INSERT INTO "depsue_campaigns" VALUES(1,'spring',2,1,'{"floor": 0.95, "names": ["gr\u00f6\u00dfe"]}');
INSERT INTO "depsue_campaigns" VALUES(2,'autumn',1,0,'{}');
CREATE TABLE depsue_deployments (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id), campaign TEXT NOT NULL REFERENCES depsue_campaigns (name),
 round INTEGER NOT NULL CHECK (round >= 1),
 policy_hash TEXT NOT NULL CHECK (length(policy_hash) = 64),
 kind TEXT NOT NULL CHECK (kind IN ('deploy', 'rollback')));
INSERT INTO "depsue_deployments" VALUES(15,'spring',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','deploy');
INSERT INTO "depsue_deployments" VALUES(16,'spring',1,'2c8590d339c0675364545c039123de45df1dd92997743e3113cc11e9d4910082','rollback');
INSERT INTO "depsue_deployments" VALUES(17,'spring',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','deploy');
CREATE TABLE depsue_journal (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL,
 what TEXT NOT NULL, campaign TEXT NOT NULL, round INTEGER, detail TEXT NOT NULL);
INSERT INTO "depsue_journal" VALUES(1,'2026-11-18T06:48:41.905927+00:00','ana','campaign','spring',NULL,'2 rounds');
INSERT INTO "depsue_journal" VALUES(2,'2026-11-18T06:48:41.925774+00:00','Zoë','campaign','autumn',NULL,'1 rounds');
INSERT INTO "depsue_journal" VALUES(3,'2026-11-18T06:48:41.973480+00:00','ana','observation','spring',0,'ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc');
INSERT INTO "depsue_journal" VALUES(4,'2026-11-18T06:48:41.979144+00:00','ana','observation','autumn',0,'c0fa1ef864788c455b22e34d6b11eb282603eeec08b2b10d38c37683ef46952c');
INSERT INTO "depsue_journal" VALUES(5,'2026-11-18T06:48:41.985013+00:00','bo','policy','spring',1,'a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e');
INSERT INTO "depsue_journal" VALUES(6,'2026-11-18T06:48:41.990187+00:00','bo','policy','spring',1,'16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4');
INSERT INTO "depsue_journal" VALUES(7,'2026-11-18T06:48:41.993770+00:00','bo','policy','spring',1,'b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927');
INSERT INTO "depsue_journal" VALUES(8,'2026-11-18T06:48:42.002312+00:00','ana','read','spring',1,'a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e');
INSERT INTO "depsue_journal" VALUES(9,'2026-11-18T06:48:42.005582+00:00','ana','verdict','spring',1,'failed');
INSERT INTO "depsue_journal" VALUES(10,'2026-11-18T06:48:42.011204+00:00','ana','read','spring',1,'16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4');
INSERT INTO "depsue_journal" VALUES(11,'2026-11-18T06:48:42.015667+00:00','bo','verdict','spring',1,'failed');
INSERT INTO "depsue_journal" VALUES(12,'2026-11-18T06:48:42.022011+00:00','ana','read','spring',1,'b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927');
INSERT INTO "depsue_journal" VALUES(13,'2026-11-18T06:48:42.058049+00:00','bo','read continued','spring',1,'b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927');
INSERT INTO "depsue_journal" VALUES(14,'2026-11-18T06:48:42.073928+00:00','ana','verdict','spring',1,'passed');
INSERT INTO "depsue_journal" VALUES(15,'2026-11-18T06:48:42.095406+00:00','ana','deploy','spring',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1');
INSERT INTO "depsue_journal" VALUES(16,'2026-11-18T06:48:42.117950+00:00','cy','rollback','spring',1,'2c8590d339c0675364545c039123de45df1dd92997743e3113cc11e9d4910082');
INSERT INTO "depsue_journal" VALUES(17,'2026-11-18T06:48:42.146712+00:00','ana','deploy','spring',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1');
INSERT INTO "depsue_journal" VALUES(18,'2026-11-18T06:48:42.170438+00:00','ana','observation','spring',1,'05c7dbac14dc2bf3e8a063a6593eb6b76198a9507d740839efd55940fa6c0cd0');
INSERT INTO "depsue_journal" VALUES(19,'2026-11-18T06:48:42.198134+00:00','bo','policy','spring',2,'dc81b1d371a4072be7fcfc3e1939f5bddae8bdc168846a50a78face975b9af63');
INSERT INTO "depsue_journal" VALUES(20,'2026-11-18T06:48:42.222813+00:00','ana','read','spring',2,'dc81b1d371a4072be7fcfc3e1939f5bddae8bdc168846a50a78face975b9af63');
CREATE TABLE depsue_observations (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id), campaign TEXT NOT NULL REFERENCES depsue_campaigns (name),
 round INTEGER NOT NULL CHECK (round >= 0),
 data_hash TEXT NOT NULL CHECK (length(data_hash) = 64),
 rows BIGINT NOT NULL CHECK (rows >= 1), source TEXT NOT NULL, summary TEXT NOT NULL,
 UNIQUE (campaign, round), UNIQUE (campaign, data_hash));
INSERT INTO "depsue_observations" VALUES(3,'spring',0,'ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc',4000,'may.parquet','{"mean reward": 0.25, "rows": 4000}');
INSERT INTO "depsue_observations" VALUES(4,'autumn',0,'c0fa1ef864788c455b22e34d6b11eb282603eeec08b2b10d38c37683ef46952c',4000,'june.parquet','{"mean reward": 0.25, "rows": 4000}');
INSERT INTO "depsue_observations" VALUES(18,'spring',1,'05c7dbac14dc2bf3e8a063a6593eb6b76198a9507d740839efd55940fa6c0cd0',4000,'july.parquet','{"mean reward": 0.25, "rows": 4000}');
CREATE TABLE depsue_policies (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id), campaign TEXT NOT NULL REFERENCES depsue_campaigns (name),
 round INTEGER NOT NULL CHECK (round >= 1),
 policy_hash TEXT NOT NULL CHECK (length(policy_hash) = 64), folder TEXT NOT NULL,
 trained_on TEXT NOT NULL, fixed TEXT NOT NULL, UNIQUE (campaign, round, policy_hash));
INSERT INTO "depsue_policies" VALUES(5,'spring',1,'a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e','rounds/1/first','["ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc"]','{"certain": ["2c8590d339c0675364545c039123de45df1dd92997743e3113cc11e9d4910082"], "delta": 0.05}');
INSERT INTO "depsue_policies" VALUES(6,'spring',1,'16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4','rounds/1/second','["ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc"]','{"certain": ["2c8590d339c0675364545c039123de45df1dd92997743e3113cc11e9d4910082"], "delta": 0.05}');
INSERT INTO "depsue_policies" VALUES(7,'spring',1,'b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927','rounds/1/third','["ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc"]','{"certain": ["2c8590d339c0675364545c039123de45df1dd92997743e3113cc11e9d4910082"], "delta": 0.05}');
INSERT INTO "depsue_policies" VALUES(19,'spring',2,'dc81b1d371a4072be7fcfc3e1939f5bddae8bdc168846a50a78face975b9af63','rounds/2/fourth','["ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc"]','{"delta": 0.05}');
CREATE TABLE depsue_reads (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id), campaign TEXT NOT NULL REFERENCES depsue_campaigns (name),
 round INTEGER NOT NULL CHECK (round >= 1),
 attempt INTEGER NOT NULL CHECK (attempt >= 1), data_hash TEXT NOT NULL,
 policy_hash TEXT NOT NULL,
 UNIQUE (campaign, round, policy_hash), UNIQUE (data_hash, attempt),
 FOREIGN KEY (campaign, round, policy_hash)
 REFERENCES depsue_policies (campaign, round, policy_hash),
 FOREIGN KEY (campaign, data_hash) REFERENCES depsue_observations (campaign, data_hash));
INSERT INTO "depsue_reads" VALUES(8,'spring',1,1,'ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc','a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e');
INSERT INTO "depsue_reads" VALUES(10,'spring',1,2,'ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc','16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4');
INSERT INTO "depsue_reads" VALUES(12,'spring',1,3,'ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc','b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927');
INSERT INTO "depsue_reads" VALUES(20,'spring',2,1,'05c7dbac14dc2bf3e8a063a6593eb6b76198a9507d740839efd55940fa6c0cd0','dc81b1d371a4072be7fcfc3e1939f5bddae8bdc168846a50a78face975b9af63');
CREATE TABLE depsue_schema (version INTEGER NOT NULL PRIMARY KEY,
 at TEXT NOT NULL, depsue TEXT NOT NULL);
INSERT INTO "depsue_schema" VALUES(1,'2026-11-18T06:48:41.898037+00:00','0.1.0');
CREATE TABLE depsue_verdicts (id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id),
 read_id BIGINT NOT NULL UNIQUE REFERENCES depsue_reads (id),
 passed INTEGER NOT NULL CHECK (passed IN (0, 1)), certified TEXT, certificate TEXT,
 note TEXT NOT NULL, CHECK (certificate IS NOT NULL OR passed = 0));
INSERT INTO "depsue_verdicts" VALUES(9,8,0,NULL,'{"campaign": "spring", "data": "ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc", "attempt": 1, "policy": null, "passed": false}','');
INSERT INTO "depsue_verdicts" VALUES(11,10,0,NULL,NULL,'its files are lost');
INSERT INTO "depsue_verdicts" VALUES(14,12,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','{"campaign": "spring", "data": "ee4d988c65de860fabbfbcd27f73d50bbebe3fba37fe419284f4811389c30bdc", "attempt": 3, "policy": "524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1", "passed": true}','');
CREATE TRIGGER depsue_campaigns_update BEFORE UPDATE ON depsue_campaigns  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_campaigns_delete BEFORE DELETE ON depsue_campaigns  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_campaigns_insert BEFORE INSERT ON depsue_campaigns WHEN EXISTS (SELECT 1 FROM depsue_campaigns WHERE (id = NEW.id) OR (name = NEW.name)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_deployments_update BEFORE UPDATE ON depsue_deployments  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_deployments_delete BEFORE DELETE ON depsue_deployments  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_deployments_insert BEFORE INSERT ON depsue_deployments WHEN EXISTS (SELECT 1 FROM depsue_deployments WHERE (id = NEW.id)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_journal_update BEFORE UPDATE ON depsue_journal  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_journal_delete BEFORE DELETE ON depsue_journal  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_journal_insert BEFORE INSERT ON depsue_journal WHEN EXISTS (SELECT 1 FROM depsue_journal WHERE (id = NEW.id)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_observations_update BEFORE UPDATE ON depsue_observations  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_observations_delete BEFORE DELETE ON depsue_observations  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_observations_insert BEFORE INSERT ON depsue_observations WHEN EXISTS (SELECT 1 FROM depsue_observations WHERE (id = NEW.id) OR (campaign = NEW.campaign AND round = NEW.round) OR (campaign = NEW.campaign AND data_hash = NEW.data_hash)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_policies_update BEFORE UPDATE ON depsue_policies  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_policies_delete BEFORE DELETE ON depsue_policies  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_policies_insert BEFORE INSERT ON depsue_policies WHEN EXISTS (SELECT 1 FROM depsue_policies WHERE (id = NEW.id) OR (campaign = NEW.campaign AND round = NEW.round AND policy_hash = NEW.policy_hash)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_reads_update BEFORE UPDATE ON depsue_reads  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_reads_delete BEFORE DELETE ON depsue_reads  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_reads_insert BEFORE INSERT ON depsue_reads WHEN EXISTS (SELECT 1 FROM depsue_reads WHERE (id = NEW.id) OR (campaign = NEW.campaign AND round = NEW.round AND policy_hash = NEW.policy_hash) OR (data_hash = NEW.data_hash AND attempt = NEW.attempt)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_schema_update BEFORE UPDATE ON depsue_schema  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_schema_delete BEFORE DELETE ON depsue_schema  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_schema_insert BEFORE INSERT ON depsue_schema WHEN EXISTS (SELECT 1 FROM depsue_schema WHERE (version = NEW.version)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_verdicts_update BEFORE UPDATE ON depsue_verdicts  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_verdicts_delete BEFORE DELETE ON depsue_verdicts  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER depsue_verdicts_insert BEFORE INSERT ON depsue_verdicts WHEN EXISTS (SELECT 1 FROM depsue_verdicts WHERE (id = NEW.id) OR (read_id = NEW.read_id)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('depsue_journal',20);
COMMIT;
