/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - functions that node.c and engine.c share
 */
#ifndef TESTS_BENCH_ENGINE_H
#define TESTS_BENCH_ENGINE_H

#include "tests/bench/node.h"

#define ND_NOBODY	0xffffffffu
#define ND_ARG_BYTES	(1u << 20)

/* node.c: send @nr entries, of @len bytes, in n->args; a refusal ends the benchmark. */
void nd_submit(struct nd_node *n, u32 engine, u16 op, u32 nr, u32 len);
void nd_settle(struct nd_node *n);

/* engine.c */
u64 nd_engine_next_arrival(const struct nd_engine *e);
bool nd_engine_arrive(struct nd_node *n, u32 engine);
void nd_engine_look(struct nd_node *n, u32 engine);
void nd_engine_begin(struct nd_node *n, u32 engine);
void nd_engine_end(struct nd_node *n, u32 engine);

#endif /* TESTS_BENCH_ENGINE_H */
