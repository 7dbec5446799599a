-- A store of decisions as depsue wrote it before stores had a version; made-up rows.
CREATE TABLE public.serving_decisions (
    seq bigint NOT NULL,
    campaign text NOT NULL,
    id text NOT NULL,
    at double precision NOT NULL,
    round integer NOT NULL,
    policy text NOT NULL,
    arm text NOT NULL,
    why text NOT NULL,
    action integer NOT NULL,
    propensity double precision NOT NULL,
    p_policy double precision NOT NULL,
    p_pi0 double precision NOT NULL,
    holdout double precision NOT NULL,
    context text NOT NULL,
    unit text,
    key text,
    asked text,
    candidates text,
    CONSTRAINT serving_decisions_arm_check CHECK ((arm = ANY (ARRAY['policy'::text, 'holdout'::text, 'pi0'::text]))),
    CONSTRAINT serving_decisions_propensity_check CHECK (((propensity > (0)::double precision) AND (propensity <= (1)::double precision)))
);
CREATE SEQUENCE public.serving_decisions_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.serving_decisions_seq_seq OWNED BY public.serving_decisions.seq;
CREATE TABLE public.serving_events (
    seq bigint NOT NULL,
    campaign text NOT NULL,
    at double precision NOT NULL,
    kind text NOT NULL,
    round integer NOT NULL,
    policy text NOT NULL,
    reason text NOT NULL,
    by text NOT NULL,
    after bigint NOT NULL,
    CONSTRAINT serving_events_kind_check CHECK ((kind = ANY (ARRAY['watch'::text, 'trip'::text, 'lift'::text])))
);
CREATE SEQUENCE public.serving_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.serving_events_seq_seq OWNED BY public.serving_events.seq;
CREATE TABLE public.serving_rewards (
    decision text NOT NULL,
    name text NOT NULL,
    event text NOT NULL,
    value double precision NOT NULL,
    received double precision NOT NULL,
    shown integer
);
ALTER TABLE ONLY public.serving_decisions ALTER COLUMN seq SET DEFAULT nextval('public.serving_decisions_seq_seq'::regclass);
ALTER TABLE ONLY public.serving_events ALTER COLUMN seq SET DEFAULT nextval('public.serving_events_seq_seq'::regclass);
INSERT INTO public.serving_decisions VALUES (1, 'spring', '00000000000000000000000000000001', 1001, 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'policy', '', 1, 0.25, 0.25, 0.125, 0.05, '{"age":1,"town":"Zürich"}', NULL, NULL, NULL, NULL);
INSERT INTO public.serving_decisions VALUES (2, 'spring', '00000000000000000000000000000002', 1002, 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'holdout', '', 2, 0.125, 0.25, 0.125, 0.05, '{"age":2,"town":"Zürich"}', '"u7"', NULL, NULL, NULL);
INSERT INTO public.serving_decisions VALUES (3, 'spring', '00000000000000000000000000000003', 1003, 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'policy', '', 3, 0.25, 0.25, 0.125, 0.05, '{"age":3,"town":"Zürich"}', NULL, 'order 3', 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL);
INSERT INTO public.serving_decisions VALUES (4, 'spring', '00000000000000000000000000000004', 1004, 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'pi0', 'it fell below the floor', 4, 0.125, 0.25, 0.125, 0.05, '{"age":4,"town":"Zürich"}', NULL, NULL, NULL, '[0,4]');
INSERT INTO public.serving_decisions VALUES (5, 'spring', '00000000000000000000000000000005', 1005, 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'policy', '', 0, 0.25, 0.25, 0.125, 0.05, '{"age":5,"town":"Zürich"}', NULL, NULL, NULL, NULL);
INSERT INTO public.serving_decisions VALUES (6, 'autumn', '00000000000000000000000000000006', 1006, 2, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'policy', '', 1, 0.25, 0.25, 0.125, 0.05, '{"age":6,"town":"Zürich"}', NULL, NULL, NULL, NULL);
INSERT INTO public.serving_events VALUES (1, 'spring', 900, 'watch', 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'stint 1', 'depsue', 0);
INSERT INTO public.serving_events VALUES (2, 'spring', 910, 'trip', 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'it fell below the floor', 'the monitor', 3);
INSERT INTO public.serving_events VALUES (3, 'spring', 920, 'lift', 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'mended', 'bo', 4);
INSERT INTO public.serving_events VALUES (4, 'spring', 930, 'watch', 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'stint 2', 'depsue', 4);
INSERT INTO public.serving_events VALUES (5, 'spring', 940, 'trip', 1, '524a2d4a63a7cca8020c7019dbff323c44df708e3960fff92fb53b064017dbc1', 'a test (by hand)', 'ana', 5);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000001', 'reward', '', 1, 1011, NULL);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000002', 'reward', '', 0.5, 1012, 2);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000002', 'reward', 'again', 0.25, 1012, NULL);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000003', 'reward', '', 0, 1013, -1);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000009', 'reward', '', 1, 1019, NULL);
INSERT INTO public.serving_rewards VALUES ('00000000000000000000000000000006', 'reward', '', 1, 1016, NULL);
SELECT pg_catalog.setval('public.serving_decisions_seq_seq', 6, true);
SELECT pg_catalog.setval('public.serving_events_seq_seq', 5, true);
ALTER TABLE ONLY public.serving_decisions
    ADD CONSTRAINT serving_decisions_id_key UNIQUE (id);
ALTER TABLE ONLY public.serving_decisions
    ADD CONSTRAINT serving_decisions_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.serving_events
    ADD CONSTRAINT serving_events_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.serving_rewards
    ADD CONSTRAINT serving_rewards_pkey PRIMARY KEY (decision, name, event);
CREATE UNIQUE INDEX serving_keys ON public.serving_decisions USING btree (campaign, key) WHERE (key IS NOT NULL);
