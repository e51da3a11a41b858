/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filters.h - filters outside of the table's file
 */
#ifndef RUNTIME_TEMPLATE_FILTERS_H
#define RUNTIME_TEMPLATE_FILTERS_H

#include "runtime/template/internal.h"

/* gather.c: filters that choose or change items of lists */
struct value f_map(struct render *r, const struct args *a);
struct value f_select(struct render *r, const struct args *a);
struct value f_reject(struct render *r, const struct args *a);
struct value f_selectattr(struct render *r, const struct args *a);
struct value f_rejectattr(struct render *r, const struct args *a);

/* order.c: filters that compare items of lists */
struct value f_sort(struct render *r, const struct args *a);
struct value f_dictsort(struct render *r, const struct args *a);
struct value f_unique(struct render *r, const struct args *a);
struct value f_min(struct render *r, const struct args *a);
struct value f_max(struct render *r, const struct args *a);
struct value f_sum(struct render *r, const struct args *a);

/* number.c */
struct value f_abs(struct render *r, const struct args *a);
struct value f_int(struct render *r, const struct args *a);
struct value f_float(struct render *r, const struct args *a);
struct value f_round(struct render *r, const struct args *a);

#endif /* RUNTIME_TEMPLATE_FILTERS_H */
