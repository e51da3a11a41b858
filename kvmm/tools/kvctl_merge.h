/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvctl_merge.h - put the running state into the text of a file of options
 */
#ifndef KVMM_TOOLS_KVCTL_MERGE_H
#define KVMM_TOOLS_KVCTL_MERGE_H

#include <kvmm/seq.h>

/**
 * kvctl_merge() - lines of the running state in place of those of the file
 * @file: text of the file
 * @runs: lines of the daemon's file `config`
 * @out:  takes the new text
 * @diff: takes each removed line behind a -, each new line behind a +; empty: the file
 *        says all of it already
 *
 * Lines of @runs with another key than a tunable's, area or domain are left out.
 *
 * Return: 0, -ENOMEM, or -E2BIG: more lines than a file may have.
 */
int __must_check kvctl_merge(const char *file, const char *runs,
			     struct seq_file *out, struct seq_file *diff);

/**
 * kvctl_is_options() - can the text be a file of options?
 * @text: @len bytes, and a NUL
 *
 * Each line is empty, a comment, a section, or a key in small letters with a value.
 */
bool kvctl_is_options(const char *text, size_t len);

#endif /* KVMM_TOOLS_KVCTL_MERGE_H */
