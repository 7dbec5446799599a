-- A store of decisions as depsue wrote it before stores had a version; made-up rows.
BEGIN TRANSACTION;
CREATE TABLE serving_decisions (
	seq INTEGER NOT NULL, 
	campaign TEXT NOT NULL, 
	id TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	round INTEGER NOT NULL, 
	policy TEXT NOT NULL, 
	arm TEXT NOT NULL, 
	why TEXT NOT NULL, 
	action INTEGER NOT NULL, 
	propensity DOUBLE NOT NULL, 
	p_policy DOUBLE NOT NULL, 
	p_pi0 DOUBLE NOT NULL, 
	holdout DOUBLE NOT NULL, 
	context TEXT NOT NULL, 
	unit TEXT, 
	"key" TEXT, 
	asked TEXT, 
	candidates TEXT, 
	PRIMARY KEY (seq), 
	CHECK (propensity > 0 AND propensity <= 1), 
	CHECK (arm IN ('policy', 'holdout', 'pi0')), 
	UNIQUE (id)
);
INSERT INTO "serving_decisions" VALUES(1,'spring','00000000000000000000000000000001',1001.0,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','policy','',1,0.25,0.25,0.125,0.05,'{"age":1,"town":"Zürich"}',NULL,NULL,NULL,NULL);
INSERT INTO "serving_decisions" VALUES(2,'spring','00000000000000000000000000000002',1002.0,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','holdout','',2,0.125,0.25,0.125,0.05,'{"age":2,"town":"Zürich"}','"u7"',NULL,NULL,NULL);
INSERT INTO "serving_decisions" VALUES(3,'spring','00000000000000000000000000000003',1003.0,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','policy','',3,0.25,0.25,0.125,0.05,'{"age":3,"town":"Zürich"}',NULL,'order 3','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL);
INSERT INTO "serving_decisions" VALUES(4,'spring','00000000000000000000000000000004',1004.0,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','pi0','it fell below the floor',4,0.125,0.25,0.125,0.05,'{"age":4,"town":"Zürich"}',NULL,NULL,NULL,'[0,4]');
INSERT INTO "serving_decisions" VALUES(5,'spring','00000000000000000000000000000005',1005.0,1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','policy','',0,0.25,0.25,0.125,0.05,'{"age":5,"town":"Zürich"}',NULL,NULL,NULL,NULL);
INSERT INTO "serving_decisions" VALUES(6,'autumn','00000000000000000000000000000006',1006.0,2,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','policy','',1,0.25,0.25,0.125,0.05,'{"age":6,"town":"Zürich"}',NULL,NULL,NULL,NULL);
CREATE TABLE serving_events (
	seq INTEGER NOT NULL, 
	campaign TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	round INTEGER NOT NULL, 
	policy TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	"after" INTEGER NOT NULL, 
	PRIMARY KEY (seq), 
	CHECK (kind IN ('watch', 'trip', 'lift'))
);
INSERT INTO "serving_events" VALUES(1,'spring',900.0,'watch',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','stint 1','depsue',0);
INSERT INTO "serving_events" VALUES(2,'spring',910.0,'trip',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','it fell below the floor','the monitor',3);
INSERT INTO "serving_events" VALUES(3,'spring',920.0,'lift',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','mended','bo',4);
INSERT INTO "serving_events" VALUES(4,'spring',930.0,'watch',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','stint 2','depsue',4);
INSERT INTO "serving_events" VALUES(5,'spring',940.0,'trip',1,'524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1','a test (by hand)','ana',5);
CREATE TABLE serving_rewards (
	decision TEXT NOT NULL, 
	name TEXT NOT NULL, 
	event TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	received DOUBLE NOT NULL, 
	shown INTEGER, 
	PRIMARY KEY (decision, name, event)
)
 WITHOUT ROWID

;
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000001','reward','',1.0,1011.0,NULL);
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000002','reward','',0.5,1012.0,2);
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000002','reward','again',0.25,1012.0,NULL);
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000003','reward','',0.0,1013.0,-1);
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000006','reward','',1.0,1016.0,NULL);
INSERT INTO "serving_rewards" VALUES('00000000000000000000000000000009','reward','',1.0,1019.0,NULL);
CREATE UNIQUE INDEX serving_keys ON serving_decisions (campaign, "key") WHERE "key" IS NOT NULL;
COMMIT;
