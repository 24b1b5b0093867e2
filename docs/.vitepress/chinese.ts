import { existsSync } from 'node:fs';
import type { DefaultTheme, LocaleSpecificConfig } from 'vitepress';
import { REPOSITORY } from './place.js';
import { linkOf, openingOf, SECTIONS_WITH_PAGES, sourceOf } from './sidebar.js';

const NAMES: Readonly<Record<string, string>> = { Start: '入门', Locks: '锁', Cache: '缓存', Recipes: '实战' };
const OF_ENGLISH: Readonly<Record<string, string>> = {
  Primitives: '其他原语',
  Backends: '后端',
  Migrate: '迁移',
  'How it works': '工作原理',
  Operate: '运维',
  Reference: '选项、错误、事件',
};

const sections = SECTIONS_WITH_PAGES.flatMap(([section, pages]) => {
  const translated = pages.map((page) => `zh/${page}`).filter((page) => existsSync(sourceOf(page)));
  return section in NAMES && translated.length > 0 ? [{ text: NAMES[section] ?? section, pages: translated }] : [];
});
const english = SECTIONS_WITH_PAGES.flatMap(([section, [first = '']]) =>
  section in OF_ENGLISH ? [{ text: OF_ENGLISH[section] ?? section, link: linkOf(first) }] : [],
);

const sidebar: DefaultTheme.SidebarItem[] = sections.map(({ text, pages }, index) => ({
  text,
  link: linkOf(pages[0] ?? ''),
  collapsed: index > 0,
  items: pages.map((page) => ({ text: openingOf(page).title, link: linkOf(page) })),
}));

/** The pages below /zh/. What has no translation is linked in English. */
export const chinese: LocaleSpecificConfig<DefaultTheme.Config> & { label: string; link: string } = {
  label: '简体中文',
  lang: 'zh-CN',
  link: '/zh/',
  description: '基于 Redis 的 NestJS 分布式锁与缓存：租约、看门狗自动续期、防护令牌，以及不会被慢读覆盖的缓存',
  themeConfig: {
    nav: [
      ...sections.map(({ text, pages: [first = ''] }) => ({ text, link: linkOf(first) })),
      { text: '英文文档', items: [...english, { text: 'API', link: '/reference/' }] },
    ],
    sidebar: { '/zh/': sidebar },
    // Each Chinese page has an English one.
    i18nRouting: true,
    outline: { level: [2, 3], label: '本页目录' },
    docFooter: { prev: '上一页', next: '下一页' },
    darkModeSwitchLabel: '外观',
    lightModeSwitchTitle: '切换到浅色模式',
    darkModeSwitchTitle: '切换到深色模式',
    sidebarMenuLabel: '菜单',
    returnToTopLabel: '回到顶部',
    langMenuLabel: '切换语言',
    skipToContentLabel: '跳到正文',
    notFound: {
      title: '页面不存在',
      quote: '这个地址没有对应的页面。',
      linkLabel: '回到首页',
      linkText: '回到首页',
    },
    footer: { message: 'MIT 许可证' },
    ...(REPOSITORY ? { editLink: { pattern: `${REPOSITORY}/edit/main/docs/:path`, text: '编辑此页' } } : {}),
  },
};

export const searchInChinese: Partial<Omit<DefaultTheme.LocalSearchOptions, 'locales'>> = {
  translations: {
    button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
    modal: {
      displayDetails: '显示详情',
      resetButtonTitle: '清空',
      backButtonTitle: '关闭',
      noResultsText: '没有结果：',
      footer: {
        selectText: '选择',
        selectKeyAriaLabel: '回车',
        navigateText: '切换',
        navigateUpKeyAriaLabel: '向上',
        navigateDownKeyAriaLabel: '向下',
        closeText: '关闭',
        closeKeyAriaLabel: 'Esc',
      },
    },
  },
};

/** The words for the search. Chinese has no spaces between them. Its source text also runs in the browser. */
export function wordsOf(text: string): string[] {
  // Those in each question say nothing about its answer.
  const common = /^(an?|and|are|as|at|be|by|do|does|for|how|i|if|in|is|it|its|my|of|on|or|that|the|to|when|with)$/i;
  return text.split(/[\p{Z}\p{P}\s]+/u).flatMap((word) => {
    if (common.test(word)) return [];
    if (!/\p{Script=Han}/u.test(word)) return [word];
    const segments = new Intl.Segmenter('zh', { granularity: 'word' }).segment(word);
    return Array.from(segments, ({ segment }) => segment);
  });
}
