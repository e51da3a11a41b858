/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - options from a file and from the environment
 *
 * An option in a program's table can be set in four places; the first of these
 * that sets it counts:
 *
 *	the command line	--pool-size 8G
 *	the environment		KVMM_POOL_SIZE=8G
 *	a file			pool-size = 8G
 *	the table		its default
 *
 * An option that may be given several times is replaced as a whole: of two
 * --tenant and three in the file, the two count.
 *
 * The file has one `key = value` a line, below a `[section]` if a program has
 * several.  A # at the beginning of a line, or after a blank, begins a comment.
 * A flag is yes or no.  A key that is unknown, is there twice or has a wrong
 * value is refused with its line, even if another place overrides it.
 *
 * A program that trusts the file trusts every user that can write it, so root
 * reads only a file that root alone could have put there.
 */
#ifndef KVMM_CONFIG_H
#define KVMM_CONFIG_H

#include <kvmm/opts.h>

#define KV_CONFIG_OPTS	96	/* of one table, at most */
#define KV_CONFIG_MAX	65536	/* bytes of a file */
#define KV_CONFIG_NONE	"none"	/* given as a file: read none */

/* Source of a value; a later source overrides an earlier one. */
enum kv_source {
	KV_FROM_DEFAULT,
	KV_FROM_FILE,
	KV_FROM_ENV,
	KV_FROM_LINE,
};

/**
 * struct kv_origin - the source of an option's value
 * @line:  line of the file that sets the option, even if it is overridden
 * @words: text of a list from the environment; the list points into it
 */
struct kv_origin {
	enum kv_source	source;
	u32		line;
	char		*words;
};

/**
 * struct kv_section - one table of options
 * @name:      name of the section in the file, "kvmm"
 * @about:     its description, for the default file
 * @env:       prefix of its names in the environment, "KVMM_"
 * @line_only: names, each between blanks, of options that only the command line
 *             can set; may be NULL
 * @opts:      @nr of them
 * @values:    the structure of their values
 * @judge:     checks a value beyond the kind of its option: 0, or -EINVAL with
 *             @text filled, which begins with --NAME; may be NULL
 * @from:      filled in
 */
struct kv_section {
	const char		*name;
	const char		*about;
	const char		*env;
	const char		*line_only;
	const struct kv_opt	*opts;
	u32			nr;
	void			*values;
	int			(*judge)(const struct kv_opt *o, const char *s,
					 char *text, size_t len);
	struct kv_origin	from[KV_CONFIG_OPTS];
};

/**
 * struct kv_config - all sections that a program reads from one file
 * @name:     of the file, for people
 * @section:  @nr of them; the first is that of the program, and its keys may
 *            stand before any [section]
 * @env_path: variable that names the file
 * @path:     of the file that was read; "": none
 * @sought:   path where a file would have been read; "": none was wanted
 * @text:     text of the file; values point into it
 */
struct kv_config {
	const char		*name;
	struct kv_section	*section;
	u32			nr;
	const char		*env_path;
	char			path[4096];
	char			sought[4096];
	char			*text;
};

/**
 * kv_config_parse() - read the options of all four places
 * @prog:  program of the first section
 * @cfg:   read, and filled in
 * @asked: path of the file; NULL: $@env_path, else @dflt
 * @dflt:  path of a file that need not exist, or NULL
 * @argv:  as of kv_opts_parse()
 * @text:  @len bytes for one line that names the fault and the remedy
 *
 * Values point into memory that kv_config_free() frees.
 *
 * Return: the number of operands; -ECANCELED as of kv_opts_parse(); -EINVAL:
 * the command line or the environment is wrong; -EBADMSG: the file is wrong, or
 * cannot be read.
 */
int __must_check kv_config_parse(const struct kv_program *prog,
				 struct kv_config *cfg, const char *asked,
				 const char *dflt, int argc, char **argv,
				 char *text, size_t len);

/**
 * kv_config_default_path() - the default path of a file
 * @name: "kvmm.conf"
 *
 * In /etc/kvmm for root; for others in $XDG_CONFIG_HOME/kvmm, else in
 * $HOME/.config/kvmm.
 *
 * Return: @buf; "" when there is no such place.
 */
const char *kv_config_default_path(const char *name, char *buf, size_t len);

/**
 * kv_config_way() - can no other user replace a part of @path?
 * @text: @len bytes for one line, which names the part that others can replace
 *
 * Each directory, and each link, must belong to root or to this user.  Others may
 * write to no directory, unless it is sticky like /tmp.
 *
 * Return: 0; -EPERM with @text filled; another negative errno without.
 */
int __must_check kv_config_way(const char *path, char *text, size_t len);

/**
 * kv_config_open() - open a file that only trusted users may write, for reading
 * @path: for root every directory on the way, and each link, must be out of
 *        others' reach
 * @text: @len bytes for one line, which names @path
 *
 * Return: descriptor, or a negative errno with @text filled.
 */
int __must_check kv_config_open(const char *path, char *text, size_t len);

/* kv_config_env_name() - "KVMM_POOL_SIZE" into @buf, which it returns */
char *kv_config_env_name(const struct kv_section *s, const struct kv_opt *o,
			 char *buf, size_t len);

/* kv_config_has() - may a file and the environment set the option? */
bool kv_config_has(const struct kv_section *s, const struct kv_opt *o);

/**
 * kv_opt_format() - a value as text that the parser reads
 * @nr:  index of the value in a list
 *
 * Return: false: there is no such value: a str is NULL, or a list is shorter.
 */
bool kv_opt_format(const struct kv_opt *o, const void *values, u32 nr,
		   char *buf, size_t len);

/**
 * kv_opt_same() - has the option one value in two structures?
 * @a, @b: structures of values
 */
bool kv_opt_same(const struct kv_opt *o, const void *a, const void *b);

/* kv_opt_copy() - copy the option's value; strings are not copied */
void kv_opt_copy(const struct kv_opt *o, void *to, const void *from);

/* kv_config_free() - free the texts that values of @cfg point into */
void kv_config_free(struct kv_config *cfg);

/**
 * kv_config_args() - settings of the file and the environment, as options
 * @argv: gets up to @max of them, each "--name=value", never freed
 *
 * Return: their number, or -ENOMEM, -E2BIG.
 */
int __must_check kv_config_args(const struct kv_section *s, char **argv,
				u32 max);

/* kv_config_print() - print every value and its source, as a file */
void kv_config_print(const struct kv_config *cfg, FILE *out);

/* kv_config_print_default() - print a file that sets every option to its default */
void kv_config_print_default(const struct kv_config *cfg, FILE *out);

/* kv_config_man() - print the manual page of the file */
void kv_config_man(const struct kv_config *cfg, FILE *out);

#endif /* KVMM_CONFIG_H */
