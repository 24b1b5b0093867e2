import { useData, withBase, type Theme } from 'vitepress';
import DefaultTheme from 'vitepress/theme-without-fonts';
import { defineComponent, h } from 'vue';
import './style.css';

/** Each page is there as Markdown, too. */
const AsMarkdown = defineComponent(() => {
  const { lang, page } = useData();
  return () =>
    h(
      'p',
      { class: 'as-markdown' },
      h(
        'a',
        { href: withBase(`/${page.value.relativePath}`), target: '_self' },
        lang.value === 'zh-CN' ? '本页的 Markdown 版本' : 'This page as Markdown',
      ),
    );
});

export default {
  extends: DefaultTheme,
  Layout: () => h(DefaultTheme.Layout, null, { 'doc-footer-before': () => h(AsMarkdown) }),
} satisfies Theme;
